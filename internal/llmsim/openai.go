package llmsim

import (
	"fmt"
	"net/http"
	"strconv"
)

// obfuscation is what OpenAI pads its chunks with, so that their size does not
// tell the length of a token.
const obfuscation = "q8Zr1LfWm5TbK"

// openAIFingerprint is the system_fingerprint of every response.
const openAIFingerprint = "fp_11a51a0de1"

// openAIWriter writes chat completions.
type openAIWriter struct {
	res  *response
	id   string
	head []byte // of every chunk, up to its choices
	tail []byte // of every chunk with a choice, between choices and padding
}

func newOpenAIWriter(res *response) writer {
	o := &openAIWriter{res: res, id: fmt.Sprintf("chatcmpl-Sim%026d", res.number)}
	o.head = fmt.Appendf(nil, `data: {"id":"%s","object":"chat.completion.chunk","created":%d,"model":%s,`+
		`"service_tier":"default","system_fingerprint":"%s","choices":[`,
		o.id, res.created.Unix(), marshal(res.model), openAIFingerprint)
	o.tail = []byte(`]`)
	if res.includeUsage {
		o.tail = []byte(`],"usage":null`)
	}
	return o
}

func (o *openAIWriter) contentType() string { return "text/event-stream; charset=utf-8" }

// begin appends a chunk of one choice, up to the inside of its delta.
func (o *openAIWriter) begin(dst []byte, choice int) []byte {
	dst = append(dst, o.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(choice), 10)
	return append(dst, `,"delta":{`...)
}

// end appends the rest of a chunk; finish is its finish_reason as JSON.
func (o *openAIWriter) end(dst []byte, k int, finish string) []byte {
	dst = append(dst, `},"logprobs":null,"finish_reason":`...)
	dst = append(dst, finish...)
	dst = append(dst, '}')
	dst = append(dst, o.tail...)
	dst = append(dst, `,"obfuscation":"`...)
	dst = append(dst, obfuscation[:k*7%len(obfuscation)]...)
	return append(dst, "\"}\n\n"...)
}

func (o *openAIWriter) appendOpening(dst []byte) []byte {
	content := `""`
	if o.res.tool != "" {
		content = "null"
	}
	for choice := range o.res.choices {
		dst = o.begin(dst, choice)
		dst = append(dst, `"role":"assistant","content":`+content+`,"refusal":null`...)
		dst = o.end(dst, choice, "null")
	}
	return dst
}

func (o *openAIWriter) appendOutput(dst []byte, k int) []byte {
	what, i := o.res.step(k)
	for choice := range o.res.choices {
		if what == kindTool && i == 0 {
			dst = o.appendToolStart(dst, choice)
		}
		dst = o.begin(dst, choice)
		switch what {
		case kindReasoning:
			dst = o.res.appendToken(append(dst, `"reasoning_content":`...), choice, k, false)
		case kindText:
			dst = o.res.appendToken(append(dst, `"content":`...), choice, k, false)
		case kindTool:
			dst = fmt.Appendf(dst, `"tool_calls":[{"index":0,"function":{"arguments":%s}}]`, marshal(toolFragments[i]))
		}
		dst = o.end(dst, k, "null")
	}
	return dst
}

// appendToolStart appends the chunk that opens the tool call of a choice.
func (o *openAIWriter) appendToolStart(dst []byte, choice int) []byte {
	dst = fmt.Appendf(o.begin(dst, choice),
		`"tool_calls":[{"index":0,"id":"%s","type":"function","function":{"name":%s,"arguments":""}}]`,
		o.callID(choice), marshal(o.res.tool))
	return o.end(dst, choice, "null")
}

// callID returns the id of the tool call of a choice.
func (o *openAIWriter) callID(choice int) string {
	return fmt.Sprintf("call_Sim%020d%d", o.res.number, choice)
}

func (o *openAIWriter) finishReason() string { return o.res.finish("stop", "length", "tool_calls") }

func (o *openAIWriter) appendFinish(dst []byte) []byte {
	for choice := range o.res.choices {
		dst = o.end(o.begin(dst, choice), o.res.steps(), `"`+o.finishReason()+`"`)
	}
	if o.res.includeUsage {
		dst = append(dst, o.head...)
		dst = append(dst, `],"usage":`...)
		dst = append(dst, marshal(o.usage())...)
		dst = append(dst, "}\n\n"...)
	}
	return dst
}

func (o *openAIWriter) appendTerminator(dst []byte) []byte { return append(dst, "data: [DONE]\n\n"...) }

func (o *openAIWriter) appendError(dst []byte, message string) []byte {
	dst = append(dst, "data: "...)
	dst = append(dst, marshal(openAIErrorBody(http.StatusInternalServerError, message))...)
	return append(dst, "\n\n"...)
}

func (o *openAIWriter) whole() any {
	type toolCall map[string]any
	type message struct {
		Role      string     `json:"role"`
		Content   *string    `json:"content"`
		Reasoning string     `json:"reasoning_content,omitempty"`
		ToolCalls []toolCall `json:"tool_calls,omitempty"`
		Refusal   *string    `json:"refusal"`
	}
	type choice struct {
		Index        int     `json:"index"`
		Message      message `json:"message"`
		Logprobs     *string `json:"logprobs"`
		FinishReason string  `json:"finish_reason"`
	}
	choices := make([]choice, o.res.choices)
	for i := range choices {
		m := message{Role: "assistant", Reasoning: ReasoningText(o.res.reasoning)}
		if o.res.tool == "" {
			text := ChoiceText(i, o.res.answer)
			m.Content = &text
		} else if o.res.answer > 0 {
			m.ToolCalls = []toolCall{{
				"id": o.callID(i), "type": "function",
				"function": map[string]string{"name": o.res.tool, "arguments": o.res.toolArguments()},
			}}
		}
		choices[i] = choice{Index: i, Message: m, FinishReason: o.finishReason()}
	}
	return struct {
		ID          string         `json:"id"`
		Object      string         `json:"object"`
		Created     int64          `json:"created"`
		Model       string         `json:"model"`
		Choices     []choice       `json:"choices"`
		Usage       map[string]any `json:"usage"`
		ServiceTier string         `json:"service_tier"`
		Fingerprint string         `json:"system_fingerprint"`
	}{o.id, "chat.completion", o.res.created.Unix(), o.res.model, choices, o.usage(), "default", openAIFingerprint}
}

func (o *openAIWriter) usage() map[string]any {
	return map[string]any{
		"prompt_tokens":             o.res.promptTokens,
		"completion_tokens":         o.res.completionTokens(),
		"total_tokens":              o.res.promptTokens + o.res.completionTokens(),
		"prompt_tokens_details":     map[string]int{"cached_tokens": 0},
		"completion_tokens_details": map[string]int{"reasoning_tokens": o.res.choices * o.res.reasoning},
	}
}

// openAIErrorBody returns OpenAI's error object, in its stream the same as in
// the body of an HTTP error.
func openAIErrorBody(status int, message string) any {
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status >= http.StatusInternalServerError:
		kind = "server_error"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": nil}}
}

// openAIModels returns the list of models.
func openAIModels() any {
	return map[string]any{
		"object": "list",
		"data":   []any{map[string]any{"id": defaultModel, "object": "model", "created": 0, "owned_by": "llmsim"}},
	}
}

// Interface guard
var _ writer = (*openAIWriter)(nil)
