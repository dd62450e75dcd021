package emit

import (
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// opensCall reports whether a fragment is the first of its call.
func opensCall(ev *event.Event) bool {
	return ev.Tool.ID != "" || ev.Tool.Name != ""
}

// appendCallID appends the escaped id of the call that a fragment opens. Some
// providers have none, but the client of an SDK answers a call by its id, so
// it is made from that of the response: every client gets the same one.
func appendCallID(b []byte, prefix, responseID string, ev *event.Event) []byte {
	if ev.Tool.ID != "" {
		return json.Append(b, ev.Tool.ID)
	}
	b = append(b, prefix...)
	b = append(b, responseID...)
	b = append(b, '_')
	if ev.Choice != 0 {
		b = strconv.AppendInt(b, int64(ev.Choice), 10)
		b = append(b, '_')
	}
	return strconv.AppendInt(b, int64(ev.Tool.Index), 10)
}
