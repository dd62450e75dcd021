package deliver

import (
	"bufio"
	"net/http"
	"strconv"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// Snapshot answers with what a response has come to at this moment, of its choice
// 0, as a JSON object on one line. Its texts are slices of the log, so that a
// client which takes its time holds no copy of them. The error is
// fanout.ErrExpired where nothing was written, or that of the connection.
func (c *Conn) Snapshot(response *fanout.Response) error {
	cursor, err := response.Open(0)
	if err != nil {
		return fanout.ErrExpired
	}
	batch := cursor.Read()
	if batch.Skipped > 0 {
		return fanout.ErrExpired
	}
	s := surveyOf(&batch)
	return c.write(func(bw *bufio.Writer) bool {
		c.state.move(ended)
		c.w.Header().Set("Content-Type", "application/json")
		c.w.WriteHeader(http.StatusOK)
		s.write(bw, response)
		return true
	})
}

// survey is where the parts of a response lie in its log.
type survey struct {
	last                     int // index of the last event
	text, reasoning, refusal [][]byte
	calls                    []surveyedCall
	terminal                 *event.Event // nil while the response runs
}

type surveyedCall struct {
	tool      event.Tool
	arguments [][]byte
}

func surveyOf(batch *fanout.Batch) *survey {
	s := new(survey)
	for index, ev, ok := batch.Next(maxMerge); ok; index, ev, ok = batch.Next(maxMerge) {
		s.last = index
		if ev.Kind.IsTerminal() {
			s.terminal = &ev
		}
		if ev.Choice == 0 {
			s.add(&ev)
		}
	}
	return s
}

func (s *survey) add(ev *event.Event) {
	switch ev.Kind {
	case event.Text:
		s.text = append(s.text, ev.Text)
	case event.Reasoning:
		s.reasoning = append(s.reasoning, ev.Text)
	case event.Refusal:
		s.refusal = append(s.refusal, ev.Text)
	case event.ToolCall:
		for len(s.calls) <= ev.Tool.Index {
			s.calls = append(s.calls, surveyedCall{tool: ev.Tool})
		}
		call := &s.calls[ev.Tool.Index]
		call.arguments = append(call.arguments, ev.Text)
	case event.Finish, event.Usage, event.End, event.Done, event.Failed: // no texts
	}
}

// startedAtLayout is the form of a moment in JSON.
const startedAtLayout = "2006-01-02T15:04:05.000Z07:00"

func (s *survey) write(bw *bufio.Writer, response *fanout.Response) {
	b := append([]byte(`{"response_id":"`), response.ID()...)
	b = append(append(b, `","status":"`...), fanout.StatusOf(s.terminal)...)
	b = append(b, `","started_at":"`...)
	b = response.Started.UTC().AppendFormat(b, startedAtLayout)
	if model := response.Model(); model != "" {
		b = json.Append(append(b, `","model":"`...), model)
	}
	_, _ = bw.Write(b)
	writeTexts(bw, `","text":"`, s.text)
	if s.reasoning != nil {
		writeTexts(bw, `","reasoning":"`, s.reasoning)
	}
	if s.refusal != nil {
		writeTexts(bw, `","refusal":"`, s.refusal)
	}
	_ = bw.WriteByte('"')
	s.writeCalls(bw)
	b = append([]byte(`,"last_event_id":"`), response.ID()...)
	b = strconv.AppendInt(append(b, ':'), int64(s.last), 10)
	b = append(b, '"')
	if s.terminal != nil {
		b = emit.AppendOutcome(append(b, ','), s.terminal)
	}
	_, _ = bw.Write(append(b, "}\n"...))
}

func (s *survey) writeCalls(bw *bufio.Writer) {
	if s.calls == nil {
		return
	}
	separator := `,"tool_calls":[`
	for i := range s.calls {
		call := &s.calls[i]
		b := append([]byte(separator), '{')
		if call.tool.ID != "" {
			b = append(json.Append(append(b, `"id":"`...), call.tool.ID), `",`...)
		}
		b = json.Append(append(b, `"name":"`...), call.tool.Name)
		_, _ = bw.Write(b)
		writeTexts(bw, `","arguments":"`, call.arguments)
		_, _ = bw.WriteString(`"}`)
		separator = ","
	}
	_ = bw.WriteByte(']')
}

// writeTexts writes escaped texts one after another.
func writeTexts(bw *bufio.Writer, head string, texts [][]byte) {
	_, _ = bw.WriteString(head)
	for _, text := range texts {
		_, _ = bw.Write(text)
	}
}
