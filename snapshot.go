package llmstream

import (
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"

	"encoding/json"
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// snapshot is a response as it is at one moment.
type snapshot struct {
	ResponseID  string             `json:"response_id"`
	Status      fanout.Status      `json:"status"`
	StartedAt   string             `json:"started_at"`
	Model       string             `json:"model,omitempty"`
	Text        escaped            `json:"text"`
	Reasoning   *escaped           `json:"reasoning,omitempty"`
	Refusal     *escaped           `json:"refusal,omitempty"`
	ToolCalls   []*snapshotCall    `json:"tool_calls,omitempty"`
	LastEventID string             `json:"last_event_id"`
	Finish      event.FinishReason `json:"finish_reason,omitempty"`
	Provider    string             `json:"provider_finish_reason,omitempty"`
	Usage       *snapshotUsage     `json:"usage,omitempty"`
	Error       *snapshotError     `json:"error,omitempty"`
}

type snapshotCall struct {
	ID        string  `json:"id,omitempty"`
	Name      string  `json:"name"`
	Arguments escaped `json:"arguments"`
}

type snapshotUsage struct {
	Input  *int64 `json:"input_tokens,omitempty"`
	Output *int64 `json:"output_tokens,omitempty"`
}

type snapshotError struct {
	Type     string          `json:"type"`
	Code     event.Code      `json:"code"`
	Message  string          `json:"message"`
	Upstream json.RawMessage `json:"upstream,omitempty"`
}

// escaped is text in the form in which a log holds it.
type escaped []byte

// MarshalJSON implements json.Marshaler.
func (e escaped) MarshalJSON() ([]byte, error) {
	return append(append([]byte{'"'}, e...), '"'), nil
}

// snapshotOf reads what a response has come to, of its choice 0. The error is
// that of a response which has just expired.
func snapshotOf(response *fanout.Response) (*snapshot, error) {
	cursor, err := response.Open(0)
	if err != nil {
		return nil, err
	}
	s := &snapshot{
		ResponseID: response.ID(),
		Status:     fanout.InProgress,
		StartedAt:  startedAt(response.Started),
		Model:      response.Model(),
	}
	last := 0
	batch := cursor.Read()
	if batch.Skipped > 0 {
		return nil, fanout.ErrExpired
	}
	for index, ev, ok := batch.Next(maxMerge); ok; index, ev, ok = batch.Next(maxMerge) {
		last = index
		s.add(&ev)
	}
	s.LastEventID = response.ID() + ":" + strconv.Itoa(last)
	return s, nil
}

func (s *snapshot) add(ev *event.Event) {
	if ev.Choice != 0 {
		return
	}
	switch ev.Kind {
	case event.Text:
		s.Text = append(s.Text, ev.Text...)
	case event.Reasoning:
		s.Reasoning = appendEscaped(s.Reasoning, ev.Text)
	case event.Refusal:
		s.Refusal = appendEscaped(s.Refusal, ev.Text)
	case event.ToolCall:
		for len(s.ToolCalls) <= ev.Tool.Index {
			s.ToolCalls = append(s.ToolCalls, &snapshotCall{ID: ev.Tool.ID, Name: ev.Tool.Name})
		}
		call := s.ToolCalls[ev.Tool.Index]
		call.Arguments = append(call.Arguments, ev.Text...)
	case event.Done:
		s.Status = fanout.StatusOf(ev)
		s.Finish = ev.Result.Finish
		if ev.Result.ProviderFinish != string(s.Finish) {
			s.Provider = ev.Result.ProviderFinish
		}
		if u := ev.Result.Usage; u != nil && (u.Input >= 0 || u.Output >= 0) {
			s.Usage = &snapshotUsage{tokens(u.Input), tokens(u.Output)}
		}
	case event.Failed:
		s.Status = fanout.StatusOf(ev)
		s.Error = &snapshotError{ev.Err.Type(), ev.Err.Code, ev.Err.Message, ev.Err.Upstream}
	case event.Finish, event.Usage, event.End: // in no log
	}
}

func appendEscaped(to *escaped, text []byte) *escaped {
	if to == nil {
		to = new(escaped)
	}
	*to = append(*to, text...)
	return to
}

// tokens is a count as JSON has it: nothing where it is not known.
func tokens(n int64) *int64 {
	if n < 0 {
		return nil
	}
	return &n
}
