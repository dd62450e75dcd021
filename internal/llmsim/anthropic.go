package llmsim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// padding is what may precede the last brace of an event. Anthropic pads its
// events so that their size does not tell the length of a token.
const padding = "               "

// statusOverloaded is the HTTP status of Anthropic's overloaded_error.
const statusOverloaded = 529

// anthropicSignature is the signature of every thinking block.
const anthropicSignature = "RXJVQlNpbXVsYXRlZFNpZ25hdHVyZQ=="

// anthropicWriter writes messages: one content block of thinking where there is
// reasoning, then one of text or of a tool's use.
type anthropicWriter struct {
	res *response
	id  string
}

func newAnthropicWriter(res *response) writer {
	return &anthropicWriter{res: res, id: fmt.Sprintf("msg_01Sim%019d", res.number)}
}

func (a *anthropicWriter) contentType() string { return "text/event-stream; charset=utf-8" }

// begin appends an event up to the first member of its data, which is its type.
func (a *anthropicWriter) begin(dst []byte, name string) []byte {
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	dst = append(dst, "\ndata: {\"type\":\""...)
	dst = append(dst, name...)
	return append(dst, '"')
}

// end appends the rest of an event, padded by a different length for every k.
func (a *anthropicWriter) end(dst []byte, k int) []byte {
	dst = append(dst, padding[:k*7%(len(padding)+1)]...)
	return append(dst, "}\n\n"...)
}

// blockIndex is that of the answer's block; the thinking block comes before it.
func (a *anthropicWriter) blockIndex() int { return min(a.res.reasoning, 1) }

func (a *anthropicWriter) appendOpening(dst []byte) []byte {
	dst = fmt.Appendf(a.begin(dst, "message_start"),
		`,"message":{"model":%s,"id":"%s","type":"message","role":"assistant","content":[],`+
			`"stop_reason":null,"stop_sequence":null,"usage":{"input_tokens":%d,"cache_creation_input_tokens":0,`+
			`"cache_read_input_tokens":0,"output_tokens":1,"service_tier":"standard"}}`,
		marshal(a.res.model), a.id, a.res.promptTokens)
	dst = a.end(dst, 0)
	if a.res.reasoning > 0 {
		dst = a.appendBlockStart(dst, 0, `"type":"thinking","thinking":"","signature":""`)
	} else {
		dst = a.appendAnswerStart(dst)
	}
	return append(dst, "event: ping\ndata: {\"type\": \"ping\"}\n\n"...)
}

func (a *anthropicWriter) appendBlockStart(dst []byte, index int, block string) []byte {
	dst = fmt.Appendf(a.begin(dst, "content_block_start"), `,"index":%d,"content_block":{%s}`, index, block)
	return a.end(dst, 1)
}

func (a *anthropicWriter) appendAnswerStart(dst []byte) []byte {
	if a.res.tool == "" {
		return a.appendBlockStart(dst, a.blockIndex(), `"type":"text","text":""`)
	}
	return a.appendBlockStart(dst, a.blockIndex(),
		fmt.Sprintf(`"type":"tool_use","id":"%s","name":%s,"input":{}`, a.toolID(), marshal(a.res.tool)))
}

func (a *anthropicWriter) toolID() string { return fmt.Sprintf("toolu_01Sim%019d", a.res.number) }

// beginDelta appends a delta up to its value. what is its type and the name of
// its value, both as JSON.
func (a *anthropicWriter) beginDelta(dst []byte, index int, what string) []byte {
	dst = append(a.begin(dst, "content_block_delta"), `,"index":`...)
	dst = strconv.AppendInt(dst, int64(index), 10)
	dst = append(dst, `,"delta":{"type":`...)
	return append(dst, what...)
}

// endDelta appends the rest of a delta.
func (a *anthropicWriter) endDelta(dst []byte, k int) []byte { return a.end(append(dst, '}'), k) }

func (a *anthropicWriter) appendBlockStop(dst []byte, index int) []byte {
	return a.end(fmt.Appendf(a.begin(dst, "content_block_stop"), `,"index":%d`, index), 1)
}

// appendThinkingStop ends the thinking block.
func (a *anthropicWriter) appendThinkingStop(dst []byte) []byte {
	dst = a.beginDelta(dst, 0, `"signature_delta","signature":"`+anthropicSignature+`"`)
	return a.appendBlockStop(a.endDelta(dst, 0), 0)
}

func (a *anthropicWriter) appendOutput(dst []byte, k int) []byte {
	what, i := a.res.step(k)
	if what == kindReasoning {
		dst = a.beginDelta(dst, 0, `"thinking_delta","thinking":`)
		return a.endDelta(a.res.appendToken(dst, 0, k, false), k)
	}
	if i == 0 && a.res.reasoning > 0 {
		dst = a.appendAnswerStart(a.appendThinkingStop(dst))
	}
	if what == kindTool {
		return a.appendToolFragment(dst, i, k)
	}
	dst = a.beginDelta(dst, a.blockIndex(), `"text_delta","text":`)
	return a.endDelta(a.res.appendToken(dst, 0, k, false), k)
}

// appendToolFragment appends fragment i of the arguments, the first one after an
// empty one, as Anthropic does.
func (a *anthropicWriter) appendToolFragment(dst []byte, i, k int) []byte {
	const what = `"input_json_delta","partial_json":`
	if i == 0 {
		dst = a.endDelta(a.beginDelta(dst, a.blockIndex(), what+`""`), 0)
	}
	dst = a.beginDelta(dst, a.blockIndex(), what)
	return a.endDelta(append(dst, marshal(toolFragments[i])...), k)
}

func (a *anthropicWriter) stopReason() string {
	return a.res.finish("end_turn", "max_tokens", "tool_use")
}

func (a *anthropicWriter) appendFinish(dst []byte) []byte {
	if a.res.reasoning > 0 && a.res.answer == 0 {
		dst = a.appendThinkingStop(dst)
	} else {
		dst = a.appendBlockStop(dst, a.blockIndex())
	}
	dst = fmt.Appendf(a.begin(dst, "message_delta"),
		`,"delta":{"stop_reason":"%s","stop_sequence":null},"usage":{"input_tokens":%d,`+
			`"cache_creation_input_tokens":0,"cache_read_input_tokens":0,"output_tokens":%d}`,
		a.stopReason(), a.res.promptTokens, a.res.steps())
	return a.end(dst, 2)
}

func (a *anthropicWriter) appendTerminator(dst []byte) []byte {
	return a.end(a.begin(dst, "message_stop"), 1)
}

func (a *anthropicWriter) appendError(dst []byte, message string) []byte {
	dst = append(dst, "event: error\ndata: "...)
	dst = append(dst, marshal(anthropicErrorBody(statusOverloaded, message))...)
	return append(dst, "\n\n"...)
}

func (a *anthropicWriter) whole() any {
	content := []any{}
	if a.res.reasoning > 0 {
		content = append(content, map[string]string{
			"type": "thinking", "thinking": ReasoningText(a.res.reasoning), "signature": anthropicSignature,
		})
	}
	switch {
	case a.res.answer == 0:
	case a.res.tool == "":
		content = append(content, map[string]string{"type": "text", "text": Text(a.res.answer)})
	default:
		content = append(content, map[string]any{
			"type": "tool_use", "id": a.toolID(), "name": a.res.tool, "input": json.RawMessage(ToolArguments),
		})
	}
	return struct {
		Model        string         `json:"model"`
		ID           string         `json:"id"`
		Type         string         `json:"type"`
		Role         string         `json:"role"`
		Content      []any          `json:"content"`
		StopReason   string         `json:"stop_reason"`
		StopSequence *string        `json:"stop_sequence"`
		Usage        map[string]int `json:"usage"`
	}{
		a.res.model, a.id, "message", "assistant", content, a.stopReason(), nil,
		map[string]int{"input_tokens": a.res.promptTokens, "output_tokens": a.res.steps()},
	}
}

// anthropicErrorBody returns Anthropic's error object, in its stream the same as
// in the body of an HTTP error.
func anthropicErrorBody(status int, message string) any { return anthropicError(status, message) }

func anthropicError(status int, message string) map[string]any {
	kind, ok := map[int]string{
		http.StatusUnauthorized:          "authentication_error",
		http.StatusForbidden:             "permission_error",
		http.StatusNotFound:              "not_found_error",
		http.StatusRequestEntityTooLarge: "request_too_large",
		http.StatusTooManyRequests:       "rate_limit_error",
		http.StatusServiceUnavailable:    "overloaded_error",
		http.StatusGatewayTimeout:        "timeout_error",
		statusOverloaded:                 "overloaded_error",
	}[status]
	switch {
	case ok:
	case status < http.StatusInternalServerError:
		kind = "invalid_request_error"
	default:
		kind = "api_error"
	}
	return map[string]any{"type": "error", "error": map[string]string{"type": kind, "message": message}}
}

// Interface guard
var _ writer = (*anthropicWriter)(nil)
