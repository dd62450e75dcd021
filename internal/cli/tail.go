package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Tail is what `caddy llm-stream tail` is told.
type Tail struct {
	URL         string
	Headers     []string // "Name: value"
	LastEventID string
	// Client sends the requests; nil is http.DefaultClient.
	Client *http.Client
}

// How long tail waits before it comes back where the server has not said, and how
// often it is refused one after the other before it gives up.
const (
	defaultRetry = 2 * time.Second
	maxRefusals  = 10
)

// errEnded ends the following of a response.
var errEnded = errors.New("the response has ended")

// Run follows a response or a channel until it ends, and comes back after every
// cut. A response that has failed is an error; a channel has no end.
func (t *Tail) Run(ctx context.Context, term *Terminal) error {
	header, err := parseHeader(t.Headers)
	if err != nil {
		return err
	}
	target, isChannel, err := tailTarget(t.URL)
	if err != nil {
		return err
	}
	f := &follower{
		url: target, header: header, last: t.LastEventID, client: t.Client, retry: defaultRetry,
		channel: isChannel, view: newView(term),
	}
	if f.client == nil {
		f.client = http.DefaultClient
	}
	err = f.run(ctx)
	f.view.close(f.status())
	if errors.Is(err, errEnded) || ctx.Err() != nil {
		return nil
	}
	return err
}

// tailTarget returns what is to be asked for: a channel with the frames of its
// responses.
func tailTarget(raw string) (target string, isChannel bool, err error) {
	u, err := url.Parse(raw)
	if err != nil {
		return "", false, fmt.Errorf("the URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", false, fmt.Errorf("%q is no URL: http://localhost:8080/llm/streams/{id} is one", raw)
	}
	segments := strings.Split(strings.Trim(u.Path, "/"), "/")
	isChannel = len(segments) > 1 && segments[len(segments)-2] == "channels"
	if isChannel && !u.Query().Has("follow") {
		q := u.Query()
		q.Set("follow", "1")
		u.RawQuery = q.Encode()
	}
	return u.String(), isChannel, nil
}

// follower reads one response or channel over any number of connections.
type follower struct {
	url     string
	header  http.Header
	client  *http.Client
	channel bool
	view    *view

	last       string // the id of the last frame
	retry      time.Duration
	begin      time.Time
	first      time.Duration // to the first output; 0: none yet
	events     int
	reconnects int
	speaker    string // of a channel, the response whose text was last
}

func (f *follower) run(ctx context.Context) error {
	f.begin = time.Now()
	for refusals := 0; refusals < maxRefusals; {
		before := f.events
		err := f.connection(ctx)
		var final *finalError
		if err != nil && (errors.Is(err, errEnded) || errors.As(err, &final) || ctx.Err() != nil) {
			return err
		}
		if refusals++; f.events > before {
			refusals = 0
		}
		f.reconnects++
		f.view.pause("reconnecting")
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(f.retry + rand.N(f.retry/4+1)): //nolint:gosec // no secret
		}
	}
	return fmt.Errorf("gave up after %d connections without an event", maxRefusals)
}

// finalError is an answer that will not be another one next time.
type finalError struct{ error }

// connection reads one connection to its end.
func (f *follower) connection(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url, nil)
	if err != nil {
		return &finalError{err}
	}
	req.Header = f.header.Clone()
	req.Header.Set("Accept", "text/event-stream")
	if f.last != "" {
		req.Header.Set("Last-Event-ID", f.last)
	}
	resp, err := f.client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch {
	case resp.StatusCode == http.StatusNoContent:
		return errEnded
	case resp.StatusCode >= http.StatusInternalServerError, resp.StatusCode == http.StatusTooManyRequests:
		return refusal(resp)
	case resp.StatusCode != http.StatusOK:
		return &finalError{refusal(resp)}
	}
	frames := newFrameReader(resp.Body)
	for {
		fr, err := frames.next()
		if err != nil {
			return err
		}
		if err := f.take(&fr); err != nil {
			return err
		}
	}
}

// frameData is what tail reads of a frame, whatever its event.
type frameData struct {
	Text         string `json:"text"`
	ResponseID   string `json:"response_id"`
	FinishReason string `json:"finish_reason"`
	Status       string `json:"status"`
	Model        string `json:"model"`
	Dropped      int    `json:"dropped"`
	Error        struct {
		Code    string `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// take shows a frame.
func (f *follower) take(fr *frame) error {
	if fr.id != "" {
		f.last = fr.id
	}
	if fr.retry > 0 {
		f.retry = fr.retry
	}
	var d frameData
	if err := json.Unmarshal([]byte(fr.data), &d); err != nil {
		return &finalError{fmt.Errorf("this is no stream of llm_stream's: %.100q", fr.data)}
	}
	if fr.event == "reconnect" {
		return io.EOF
	}
	f.events++
	switch fr.event {
	case "", "refusal", "reasoning":
		f.text(fr.event, &d)
	case "started":
		f.view.note(fmt.Sprintf("started %s", d.ResponseID))
	case "ended":
		f.view.note(fmt.Sprintf("ended %s %s %s", d.ResponseID, d.Status, d.Model))
	case "gap":
		f.view.note(fmt.Sprintf("%d events are left out", d.Dropped))
	case "done":
		f.view.note(strings.TrimSpace("done " + d.FinishReason))
	case "error":
		if !f.channel {
			return &finalError{fmt.Errorf("%s: %s", d.Error.Code, d.Error.Message)}
		}
		f.view.note(fmt.Sprintf("error %s: %s", d.Error.Code, d.Error.Message))
	}
	if fr.event == "done" && !f.channel {
		return errEnded
	}
	f.view.status(f.status())
	return nil
}

// text shows what the model says. On a channel, the response is named when
// another one speaks.
func (f *follower) text(kind string, d *frameData) {
	if f.first == 0 {
		f.first = time.Since(f.begin)
	}
	if f.channel && d.ResponseID != f.speaker {
		f.speaker = d.ResponseID
		f.view.note(d.ResponseID + ":")
	}
	f.view.text(d.Text, kind == "reasoning")
}

// status is the line that says how it goes.
func (f *follower) status() string {
	line := fmt.Sprintf("%d events", f.events)
	if f.first > 0 {
		line += " · first token " + seconds(f.first)
		if d := time.Since(f.begin) - f.first; d > 0 && f.events > 1 {
			line += fmt.Sprintf(" · %.1f events/s", float64(f.events-1)/d.Seconds())
		}
	}
	switch f.reconnects {
	case 0:
	case 1:
		line += " · 1 reconnect"
	default:
		line += fmt.Sprintf(" · %d reconnects", f.reconnects)
	}
	return line
}
