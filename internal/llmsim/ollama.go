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

// ollamaContext is the context of every answer of /api/generate, as tokens.
var ollamaContext = []int{105, 2364, 107}

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
	what, i := o.res.step(k)
	if !o.chat && i == 0 && o.res.reasoning > 0 {
		// The tag before the thinking, or after it, is a token of which only
		// /api/chat keeps nothing.
		dst = o.endLine(append(o.appendHead(dst), `""`...))
	}
	dst = o.appendHead(dst)
	switch what {
	case kindReasoning:
		dst = o.res.appendToken(append(dst, `"","thinking":`...), 0, k, true)
	case kindTool:
		dst = fmt.Appendf(dst, `"","tool_calls":[{"id":"%s","function":{"index":0,"name":%s,"arguments":%s}}]`,
			o.res.ollamaCallID(), marshal(o.res.tool), ToolArguments)
	default:
		dst = o.res.appendToken(dst, 0, k, true)
	}
	return o.endLine(dst)
}

// endLine appends the rest of a line that is not the last one.
func (o *ollamaWriter) endLine(dst []byte) []byte {
	return append(o.appendMessageEnd(dst), ",\"done\":false}\n"...)
}

// appendFinish appends nothing: the last line is the finish and the terminator.
func (o *ollamaWriter) appendFinish(dst []byte) []byte { return dst }

func (o *ollamaWriter) appendTerminator(dst []byte) []byte {
	dst = o.appendMessageEnd(append(o.appendHead(dst), `""`...))
	dst = fmt.Appendf(dst, `,"done":true,"done_reason":"%s"`, o.doneReason())
	if !o.chat {
		dst = fmt.Appendf(dst, `,"context":%s`, marshal(ollamaContext))
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
		Index     int             `json:"index"`
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	type toolCall struct {
		ID       string   `json:"id"`
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
		Done       bool   `json:"done"`
		DoneReason string `json:"done_reason"`
		Context    []int  `json:"context,omitempty"`
		ollamaTimings
	}
	h := head{o.res.model, time.Now().UTC()}
	t := tail{Done: true, DoneReason: o.doneReason(), ollamaTimings: o.timings()}
	m := message{Role: "assistant", Content: o.res.text(), Thinking: ReasoningText(o.res.reasoning)}
	if o.res.callsTool() {
		m.ToolCalls = []toolCall{{o.res.ollamaCallID(), function{Name: o.res.tool, Arguments: json.RawMessage(ToolArguments)}}}
	}
	if o.chat {
		return struct {
			head
			Message message `json:"message"`
			tail
		}{h, m, t}
	}
	t.Context = ollamaContext
	return struct {
		head
		Response string `json:"response"`
		Thinking string `json:"thinking,omitempty"`
		tail
	}{h, m.Content, m.Thinking, t}
}

// ollamaCallID is the id of a response's tool call in all APIs of Ollama.
func (r *response) ollamaCallID() string { return fmt.Sprintf("call_%08x", r.number) }

// ollamaErrorBody returns Ollama's error object, in its stream the same as in
// the body of an HTTP error.
func ollamaErrorBody(_ int, message string) any { return map[string]string{"error": message} }

// Interface guard
var _ writer = (*ollamaWriter)(nil)
