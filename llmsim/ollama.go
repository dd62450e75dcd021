package llmsim

import (
	"encoding/json"
	"fmt"
	"time"
)

// ollamaWriter writes the lines of /api/chat and /api/generate. Like the real
// server, which is written in Go, it escapes <, > and & in its streams.
type ollamaWriter struct {
	res   *response
	chat  bool
	model []byte // as JSON
}

func newOllamaChatWriter(res *response) writer {
	return &ollamaWriter{res: res, chat: true, model: marshal(res.model)}
}

func newOllamaGenerateWriter(res *response) writer {
	return &ollamaWriter{res: res, model: marshal(res.model)}
}

func (o *ollamaWriter) contentType() string { return "application/x-ndjson" }

// appendHead appends a line's beginning, up to what it carries.
func (o *ollamaWriter) appendHead(dst []byte) []byte {
	dst = append(dst, `{"model":`...)
	dst = append(dst, o.model...)
	dst = append(dst, `,"created_at":"`...)
	dst = time.Now().UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, `",`...)
	if o.chat {
		return append(dst, `"message":{"role":"assistant","content":`...)
	}
	return append(dst, `"response":`...)
}

// appendMessageEnd closes what appendHead has opened.
func (o *ollamaWriter) appendMessageEnd(dst []byte) []byte {
	if o.chat {
		return append(dst, '}')
	}
	return dst
}

// appendOpening appends nothing: a stream begins with its first token.
func (o *ollamaWriter) appendOpening(dst []byte) []byte { return dst }

func (o *ollamaWriter) appendOutput(dst []byte, k int) []byte {
	dst = o.appendHead(dst)
	switch what, _ := o.res.step(k); what {
	case kindReasoning:
		dst = o.res.appendToken(append(dst, `"","thinking":`...), 0, k, true)
	case kindTool:
		dst = fmt.Appendf(dst, `"","tool_calls":[{"function":{"name":%s,"arguments":%s}}]`, marshal(o.res.tool), ToolArguments)
	default:
		dst = o.res.appendToken(dst, 0, k, true)
	}
	return append(o.appendMessageEnd(dst), ",\"done\":false}\n"...)
}

// appendFinish appends nothing: the last line is the finish and the terminator.
func (o *ollamaWriter) appendFinish(dst []byte) []byte { return dst }

func (o *ollamaWriter) appendTerminator(dst []byte) []byte {
	dst = o.appendMessageEnd(append(o.appendHead(dst), `""`...))
	dst = fmt.Appendf(dst, `,"done_reason":"%s","done":true`, o.doneReason())
	if !o.chat {
		dst = append(dst, `,"context":[105,2364,107]`...)
	}
	t := o.timings()
	return fmt.Appendf(dst, `,"total_duration":%d,"load_duration":%d,"prompt_eval_count":%d,"prompt_eval_duration":%d,`+
		"\"eval_count\":%d,\"eval_duration\":%d}\n", t.Total, t.Load, t.PromptCount, t.Prompt, t.EvalCount, t.Eval)
}

// doneReason is stop after a tool call too.
func (o *ollamaWriter) doneReason() string { return o.res.finish("stop", "length", "stop") }

func (o *ollamaWriter) appendError(dst []byte, message string) []byte {
	return append(append(dst, marshal(ollamaErrorBody(0, message))...), '\n')
}

// ollamaTimings are the counts, and the durations in nanoseconds, of a response.
type ollamaTimings struct {
	Total       time.Duration `json:"total_duration"`
	Load        time.Duration `json:"load_duration"`
	PromptCount int           `json:"prompt_eval_count"`
	Prompt      time.Duration `json:"prompt_eval_duration"`
	EvalCount   int           `json:"eval_count"`
	Eval        time.Duration `json:"eval_duration"`
}

func (o *ollamaWriter) timings() ollamaTimings {
	total := time.Since(o.res.created)
	return ollamaTimings{
		Total: total, Load: total / 10, PromptCount: o.res.promptTokens,
		Prompt: total / 10, EvalCount: o.res.steps(), Eval: total * 8 / 10,
	}
}

func (o *ollamaWriter) whole() any {
	type function struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type toolCall struct {
		Function function `json:"function"`
	}
	type message struct {
		Role      string     `json:"role"`
		Content   string     `json:"content"`
		Thinking  string     `json:"thinking,omitempty"`
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
	}
	type head struct {
		Model   string    `json:"model"`
		Created time.Time `json:"created_at"`
	}
	type tail struct {
		DoneReason string `json:"done_reason"`
		Done       bool   `json:"done"`
		ollamaTimings
	}
	h := head{o.res.model, time.Now().UTC()}
	t := tail{o.doneReason(), true, o.timings()}
	m := message{Role: "assistant", Thinking: ReasoningText(o.res.reasoning)}
	switch {
	case o.res.tool == "":
		m.Content = Text(o.res.answer)
	case o.res.answer > 0:
		m.ToolCalls = []toolCall{{function{o.res.tool, json.RawMessage(ToolArguments)}}}
	}
	if o.chat {
		return struct {
			head
			Message message `json:"message"`
			tail
		}{h, m, t}
	}
	return struct {
		head
		Response string `json:"response"`
		Thinking string `json:"thinking,omitempty"`
		tail
	}{h, m.Content, m.Thinking, t}
}

// ollamaErrorBody returns Ollama's error object, in its stream the same as in
// the body of an HTTP error.
func ollamaErrorBody(_ int, message string) any { return map[string]string{"error": message} }

// Interface guard
var _ writer = (*ollamaWriter)(nil)
