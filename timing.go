package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/timeouts"
)

// Timeouts bounds how long things may take. A negative duration switches one
// off. The defaults are generous, because reasoning models are silent for
// minutes.
type Timeouts struct {
	// How long until the model's first output, which reasoning and tool calls
	// are as well: from admission where the request asks for a stream, else
	// from the upstream's header. Default: 5m, or total where that is shorter.
	FirstToken caddy.Duration `json:"first_token,omitempty"`

	// How long between two outputs of the model. Time in which the upstream
	// is held back by a slow client does not count. Default: 2m.
	BetweenTokens caddy.Duration `json:"between_tokens,omitempty"`

	// How long a response may take in all, from admission. Default: off.
	Total caddy.Duration `json:"total,omitempty"`

	// How long one write to a client may make no progress; then the client is
	// disconnected. Caddy's own write_idle timeout bounds it as well. Default:
	// 30s.
	Write caddy.Duration `json:"write,omitempty"`
}

// The defaults of Timeouts, and of heartbeat.
const (
	defaultFirstToken    = 5 * time.Minute
	defaultBetweenTokens = 2 * time.Minute
	defaultWriteTimeout  = 30 * time.Second
	defaultHeartbeat     = 15 * time.Second
)

func (t *Timeouts) validate() error {
	if t.Total > 0 && t.FirstToken > 0 && t.Total <= t.FirstToken {
		return fmt.Errorf("timeouts: total (%v) must be longer than first_token (%v)",
			time.Duration(t.Total), time.Duration(t.FirstToken))
	}
	return nil
}

// limits returns what a watch of a producer enforces.
func (t *Timeouts) limits() timeouts.Limits {
	l := timeouts.Limits{
		FirstToken:    orDefault(t.FirstToken, defaultFirstToken),
		BetweenTokens: orDefault(t.BetweenTokens, defaultBetweenTokens),
		Total:         orDefault(t.Total, 0),
	}
	if l.Total > 0 && t.FirstToken == 0 {
		l.FirstToken = min(l.FirstToken, l.Total)
	}
	return l
}

// timeoutTerminal returns the terminal event of a response that took too long;
// nil where the cause is another.
func timeoutTerminal(cause error) *event.Event {
	var timeout *timeouts.TimeoutError
	if !errors.As(cause, &timeout) {
		return nil
	}
	messages := map[timeouts.Cause]string{
		timeouts.FirstToken:    "the model did not answer within %v",
		timeouts.BetweenTokens: "the model was silent for %v",
		timeouts.Total:         "the response took longer than %v",
	}
	return &event.Event{Kind: event.Failed, Err: &event.Error{
		Code:    event.Code(timeout.Code()),
		Status:  http.StatusGatewayTimeout,
		Message: fmt.Sprintf(messages[timeout.Cause], timeout.Limit),
	}}
}
