package llmsim

import (
	"context"
	"time"
)

// pacer spaces the tokens of one response. It keeps to a timetable, so that the
// lateness of one token does not add to that of the next.
type pacer struct {
	due   time.Time
	timer *time.Timer
}

func newPacer() *pacer { return &pacer{due: time.Now()} }

// wait returns when d has passed since the last token was due, or with the
// context's error as soon as that is done.
func (p *pacer) wait(ctx context.Context, d time.Duration) error {
	p.due = p.due.Add(d)
	ahead := time.Until(p.due)
	if ahead <= 0 {
		// A client that blocked us is not made up for with a burst.
		p.due = p.due.Add(-ahead)
		return ctx.Err()
	}
	if p.timer == nil {
		p.timer = time.NewTimer(ahead)
	} else {
		p.timer.Reset(ahead)
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-p.timer.C:
		return nil
	}
}

// stop frees the timer.
func (p *pacer) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
