package llmsim

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// ollamaRequestID is the request_id of every error of Ollama's messages.
const ollamaRequestID = "req_00000000000000000000516d"

// ollamaMessageWriter writes messages as Ollama does: without pings, signatures
// and padding, and with fewer members.
type ollamaMessageWriter struct {
	res *response
	id  string
}

func newOllamaMessageWriter(res *response) writer {
	return &ollamaMessageWriter{res: res, id: fmt.Sprintf("msg_%024x", res.number)}
}

func (o *ollamaMessageWriter) contentType() string { return eventStreamType }

// begin appends an event up to the first member of its data, which is its type.
func (o *ollamaMessageWriter) begin(dst []byte, name string) []byte {
	dst = append(dst, "event: "...)
	dst = append(dst, name...)
	dst = append(dst, "\ndata: {\"type\":\""...)
	dst = append(dst, name...)
	return append(dst, '"')
}

// beginBlock appends an event of a content block up to the block's index.
func (o *ollamaMessageWriter) beginBlock(dst []byte, name string, index int) []byte {
	dst = append(o.begin(dst, name), `,"index":`...)
	return strconv.AppendInt(dst, int64(index), 10)
}

// end appends the end of an event.
func (o *ollamaMessageWriter) end(dst []byte) []byte { return append(dst, "}\n\n"...) }

// estimatedTokens is what Ollama says at the beginning, when it has not counted
// the prompt: too few, for what the template adds is not in it.
func (o *ollamaMessageWriter) estimatedTokens() int { return max(1, o.res.promptTokens/2) }

func (o *ollamaMessageWriter) appendOpening(dst []byte) []byte {
	dst = fmt.Appendf(o.begin(dst, "message_start"),
		`,"message":{"id":"%s","type":"message","role":"assistant","model":%s,"content":[],"usage":{"input_tokens":%d,"output_tokens":0}}`,
		o.id, marshal(o.res.model), o.estimatedTokens())
	return o.end(dst)
}

func (o *ollamaMessageWriter) appendStart(dst []byte, index int, block string) []byte {
	return o.end(fmt.Appendf(o.beginBlock(dst, "content_block_start", index), `,"content_block":{%s}`, block))
}

func (o *ollamaMessageWriter) appendStop(dst []byte, index int) []byte {
	return o.end(o.beginBlock(dst, "content_block_stop", index))
}

// beginDelta appends a delta up to its value. what is its type and the name of
// its value, both as JSON.
func (o *ollamaMessageWriter) beginDelta(dst []byte, index int, what string) []byte {
	dst = append(o.beginBlock(dst, "content_block_delta", index), `,"delta":{"type":`...)
	return append(dst, what...)
}

// endDelta appends the rest of a delta.
func (o *ollamaMessageWriter) endDelta(dst []byte) []byte { return o.end(append(dst, '}')) }

func (o *ollamaMessageWriter) appendOutput(dst []byte, k int) []byte {
	switch what, i := o.res.step(k); what {
	case kindReasoning:
		if i == 0 {
			dst = o.appendStart(dst, 0, `"type":"thinking","thinking":""`)
		}
		dst = o.beginDelta(dst, 0, `"thinking_delta","thinking":`)
		return o.endDelta(o.res.appendToken(dst, 0, k, true))
	case kindText:
		index := min(o.res.reasoning, 1)
		if i == 0 {
			if o.res.reasoning > 0 {
				dst = o.appendStop(dst, 0)
			}
			dst = o.appendStart(dst, index, `"type":"text","text":""`)
		}
		dst = o.beginDelta(dst, index, `"text_delta","text":`)
		return o.endDelta(o.res.appendToken(dst, 0, k, true))
	default:
		return o.appendToolCall(dst)
	}
}

// appendToolCall appends the block of the tool's use. After a thinking block,
// which is still open, Ollama gives it the index of that one.
func (o *ollamaMessageWriter) appendToolCall(dst []byte) []byte {
	dst = o.appendStart(dst, 0, fmt.Sprintf(`"type":"tool_use","id":"%s","name":%s,"input":{}`,
		o.res.ollamaCallID(), marshal(o.res.tool)))
	dst = o.beginDelta(dst, 0, `"input_json_delta","partial_json":`)
	return o.appendStop(o.endDelta(append(dst, marshal(ToolArguments)...)), 0)
}

func (o *ollamaMessageWriter) stopReason() string {
	return o.res.finish("end_turn", "max_tokens", "tool_use")
}

func (o *ollamaMessageWriter) appendFinish(dst []byte) []byte {
	switch {
	case o.res.callsTool() && o.res.reasoning > 0:
		dst = o.appendStop(dst, 1)
	case o.res.callsTool() || o.res.steps() == 0:
	case o.res.answer > 0:
		dst = o.appendStop(dst, min(o.res.reasoning, 1))
	default:
		dst = o.appendStop(dst, 0)
	}
	dst = fmt.Appendf(o.begin(dst, "message_delta"), `,"delta":{"stop_reason":"%s"},"usage":{"input_tokens":%d,"output_tokens":%d}`,
		o.stopReason(), o.res.promptTokens, o.res.steps())
	return o.end(dst)
}

func (o *ollamaMessageWriter) appendTerminator(dst []byte) []byte {
	return o.end(o.begin(dst, "message_stop"))
}

// appendError appends nothing, as Ollama does.
func (o *ollamaMessageWriter) appendError(dst []byte, _ string) []byte { return dst }

func (o *ollamaMessageWriter) whole() any {
	var content []any
	if o.res.reasoning > 0 {
		content = append(content, map[string]string{"type": "thinking", "thinking": ReasoningText(o.res.reasoning)})
	}
	if text := o.res.text(); text != "" {
		content = append(content, map[string]string{"type": "text", "text": text})
	}
	if o.res.callsTool() {
		content = append(content, map[string]any{
			"type": "tool_use", "id": o.res.ollamaCallID(), "name": o.res.tool, "input": json.RawMessage(ToolArguments),
		})
	}
	return struct {
		ID         string         `json:"id"`
		Type       string         `json:"type"`
		Role       string         `json:"role"`
		Model      string         `json:"model"`
		Content    []any          `json:"content"`
		StopReason string         `json:"stop_reason"`
		Usage      map[string]int `json:"usage"`
	}{
		o.id, "message", "assistant", o.res.model, content, o.stopReason(),
		map[string]int{"input_tokens": o.res.promptTokens, "output_tokens": o.res.steps()},
	}
}

// ollamaAnthropicErrorBody returns the error object of Ollama's messages.
func ollamaAnthropicErrorBody(status int, message string) any {
	body := anthropicError(status, message)
	body["request_id"] = ollamaRequestID
	return body
}

// Interface guard
var _ writer = (*ollamaMessageWriter)(nil)
