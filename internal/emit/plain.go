package emit

import (
	"bufio"
	"net/http"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// Plain encodes the text alone: what the model says in the first choice, a
// refusal included. There is no place for anything else, an error or a
// heartbeat either.
type Plain struct {
	responseID string
}

// NewPlain returns an encoder for one client of a response.
func NewPlain(responseID string) *Plain {
	return &Plain{responseID: responseID}
}

// Header implements Encoder.
func (p *Plain) Header(h http.Header) {
	setHeader(h, "text/plain; charset=utf-8", p.responseID)
	// Without it browsers hold back the first bytes to guess the type.
	h.Set("X-Content-Type-Options", "nosniff")
}

// Encode implements Encoder.
func (p *Plain) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	if ev.Choice != 0 || ev.Kind != event.Text && ev.Kind != event.Refusal {
		return
	}
	_, _ = w.Write(json.AppendPlain(reserve(w, len(ev.Text)), ev.Text))
}

var _ Encoder = (*Plain)(nil)
