package emit

import "github.com/caddy-llmstream/caddy-llmstream/internal/event"

// AppendOutcome appends the members with which a response ends in the dialect
// text, as they stand in the data of its last frame: finish reason and usage, or
// the error.
func AppendOutcome(dst []byte, terminal *event.Event) []byte {
	if terminal.Kind == event.Failed {
		return appendErrorMember(dst, terminal.Err, terminal.Err.Type(), "")
	}
	return appendResult(dst, terminal.Result)
}
