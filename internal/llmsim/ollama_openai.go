package llmsim

import (
	"fmt"
	"net/http"
)

// ollamaFingerprint is the system_fingerprint of Ollama's OpenAI APIs.
const ollamaFingerprint = "fp_ollama"

// ollamaOpenAIWriter writes chat completions and completions as Ollama does.
type ollamaOpenAIWriter struct {
	res  *response
	chat bool
	id   string
	head []byte // of every chunk, up to its choices
	tail []byte // of every chunk but the last, after its choices
}

func newOllamaChunkWriter(res *response) writer {
	return newOllamaOpenAIWriter(&ollamaOpenAIWriter{res: res, chat: true, id: fmt.Sprintf("chatcmpl-%d", res.number)})
}

func newOllamaCompletionWriter(res *response) writer {
	return newOllamaOpenAIWriter(&ollamaOpenAIWriter{res: res, id: fmt.Sprintf("cmpl-%d", res.number)})
}

func newOllamaOpenAIWriter(o *ollamaOpenAIWriter) writer {
	model := string(marshal(o.res.model))
	o.head = o.appendHead(nil, model)
	o.tail = o.appendTail(nil, model, o.noUsage())
	return o
}

func (o *ollamaOpenAIWriter) contentType() string { return eventStreamType }

// appendHead appends a chunk up to its choices; model is JSON.
func (o *ollamaOpenAIWriter) appendHead(dst []byte, model string) []byte {
	if o.chat {
		return fmt.Appendf(dst, `data: {"id":"%s","object":"chat.completion.chunk","created":%d,"model":%s,"system_fingerprint":"%s","choices":[`,
			o.id, o.res.created.Unix(), model, ollamaFingerprint)
	}
	return fmt.Appendf(dst, `data: {"id":"%s","object":"text_completion","created":%d,"choices":[`, o.id, o.res.created.Unix())
}

// appendTail appends the rest of a chunk; model and usage are JSON, and without
// usage there is no such member.
func (o *ollamaOpenAIWriter) appendTail(dst []byte, model, usage string) []byte {
	dst = append(dst, ']')
	if !o.chat {
		dst = fmt.Appendf(dst, `,"model":%s,"system_fingerprint":"%s"`, model, ollamaFingerprint)
	}
	if usage != "" {
		dst = append(append(dst, `,"usage":`...), usage...)
	}
	return append(dst, "}\n\n"...)
}

// noUsage is the usage of every chunk but the last: zero in completions.
func (o *ollamaOpenAIWriter) noUsage() string {
	if o.chat || !o.res.includeUsage {
		return ""
	}
	return string(marshal(ollamaUsage{}))
}

// appendOpening appends nothing: a stream begins with its first token.
func (o *ollamaOpenAIWriter) appendOpening(dst []byte) []byte { return dst }

// beginChoice appends a choice up to its text.
func (o *ollamaOpenAIWriter) beginChoice(dst []byte) []byte {
	if o.chat {
		return append(dst, `{"index":0,"delta":{"role":"assistant","content":`...)
	}
	return append(dst, `{"text":`...)
}

// endChoice appends the rest of a choice; finish is its finish_reason as JSON.
func (o *ollamaOpenAIWriter) endChoice(dst []byte, finish string) []byte {
	if o.chat {
		dst = append(dst, `},"finish_reason":`...)
	} else {
		dst = append(dst, `,"index":0,"finish_reason":`...)
	}
	return append(append(dst, finish...), '}')
}

// appendBlank appends a choice without text.
func (o *ollamaOpenAIWriter) appendBlank(dst []byte, finish string) []byte {
	return o.endChoice(append(o.beginChoice(dst), `""`...), finish)
}

func (o *ollamaOpenAIWriter) appendOutput(dst []byte, k int) []byte {
	dst = o.beginChoice(append(dst, o.head...))
	switch what, _ := o.res.step(k); what {
	case kindText:
		dst = o.res.appendToken(dst, 0, k, true)
	case kindReasoning:
		dst = append(dst, `""`...)
		if o.chat {
			dst = o.res.appendToken(append(dst, `,"reasoning":`...), 0, k, true)
		}
	case kindTool:
		dst = append(append(dst, `"","tool_calls":`...), marshal(o.toolCalls())...)
	}
	return append(o.endChoice(dst, "null"), o.tail...)
}

func (o *ollamaOpenAIWriter) finishReason() string {
	return o.res.finish("stop", "length", "tool_calls")
}

func (o *ollamaOpenAIWriter) appendFinish(dst []byte) []byte {
	dst = o.appendBlank(append(dst, o.head...), `"`+o.finishReason()+`"`)
	dst = append(dst, o.tail...)
	if o.res.includeUsage {
		dst = o.appendTail(append(dst, o.head...), string(marshal(o.res.model)), string(marshal(o.usage())))
	}
	return dst
}

func (o *ollamaOpenAIWriter) appendTerminator(dst []byte) []byte {
	return append(dst, "data: [DONE]\n\n"...)
}

// appendError appends what Ollama makes of an error: it reads it as a token, and
// finds neither model nor text.
func (o *ollamaOpenAIWriter) appendError(dst []byte, _ string) []byte {
	const model = `""`
	dst = o.appendBlank(o.appendHead(dst, model), "null")
	return o.appendTail(dst, model, o.noUsage())
}

// ollamaUsage counts the tokens of a response.
type ollamaUsage struct {
	Prompt     int `json:"prompt_tokens"`
	Completion int `json:"completion_tokens"`
	Total      int `json:"total_tokens"`
}

func (o *ollamaOpenAIWriter) usage() ollamaUsage {
	return ollamaUsage{o.res.promptTokens, o.res.steps(), o.res.promptTokens + o.res.steps()}
}

// ollamaToolCall is a tool call in a chat completion.
type ollamaToolCall struct {
	ID       string `json:"id"`
	Index    int    `json:"index"`
	Type     string `json:"type"`
	Function struct {
		Name      string `json:"name"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

func (o *ollamaOpenAIWriter) toolCalls() []ollamaToolCall {
	call := ollamaToolCall{ID: o.res.ollamaCallID(), Type: "function"}
	call.Function.Name, call.Function.Arguments = o.res.tool, ToolArguments
	return []ollamaToolCall{call}
}

func (o *ollamaOpenAIWriter) whole() any {
	type message struct {
		Role      string           `json:"role"`
		Content   string           `json:"content"`
		Reasoning string           `json:"reasoning,omitempty"`
		ToolCalls []ollamaToolCall `json:"tool_calls,omitempty"`
	}
	type chatChoice struct {
		Index        int     `json:"index"`
		Message      message `json:"message"`
		FinishReason string  `json:"finish_reason"`
	}
	type textChoice struct {
		Text         string `json:"text"`
		Index        int    `json:"index"`
		FinishReason string `json:"finish_reason"`
	}
	var objectType string
	var choice any
	if o.chat {
		m := message{Role: "assistant", Content: o.res.text(), Reasoning: ReasoningText(o.res.reasoning)}
		if o.res.callsTool() {
			m.ToolCalls = o.toolCalls()
		}
		objectType, choice = "chat.completion", chatChoice{Message: m, FinishReason: o.finishReason()}
	} else {
		objectType, choice = "text_completion", textChoice{Text: o.res.text(), FinishReason: o.finishReason()}
	}
	return struct {
		ID          string      `json:"id"`
		Object      string      `json:"object"`
		Created     int64       `json:"created"`
		Model       string      `json:"model"`
		Fingerprint string      `json:"system_fingerprint"`
		Choices     []any       `json:"choices"`
		Usage       ollamaUsage `json:"usage"`
	}{o.id, objectType, o.res.created.Unix(), o.res.model, ollamaFingerprint, []any{choice}, o.usage()}
}

// ollamaOpenAIErrorBody returns the error object of Ollama's OpenAI APIs.
func ollamaOpenAIErrorBody(status int, message string) any {
	kind := "api_error"
	if status == http.StatusBadRequest {
		kind = "invalid_request_error"
	}
	return map[string]any{"error": map[string]any{"message": message, "type": kind, "param": nil, "code": nil}}
}

// Interface guard
var _ writer = (*ollamaOpenAIWriter)(nil)
