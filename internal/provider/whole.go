package provider

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

// DecodeWhole translates a response that is a whole JSON completion of a known
// API, which a backend has sent although a stream was asked for. It returns the
// events, the terminal one among them, and the Reader that knows the rest of it:
// they are valid until its Release. The Reader is nil where the body is no
// completion.
//
// A completion says what a stream says, so it is made one of: its object is an
// event in Gemini's and Ollama's APIs and in the older one of OpenAI's, the
// closing event in Responses, and but for the name of one member in Chat
// Completions.
func DecodeWhole(o Options, body []byte) ([]event.Event, *Reader) {
	if !gjson.ValidBytes(body) {
		return nil, nil
	}
	stream, contentType := streamOf(formatOfPath(o.Path), gjson.ParseBytes(body))
	if stream == nil {
		return nil, nil
	}
	o.ContentType = contentType
	o.MaxEvent = max(o.MaxEvent, 2*len(stream))
	r := NewReader(o)
	events := r.Feed(stream)
	if r.State() != Recognized || len(events) == 0 || !events[len(events)-1].Kind.IsTerminal() {
		return nil, nil
	}
	return events, r
}

const (
	typeSSE    = "text/event-stream"
	typeNDJSON = "application/x-ndjson"
)

// streamOf returns the stream that says the same as a whole completion, and its
// content type; nil where the object is none.
func streamOf(format string, object gjson.Result) (stream []byte, contentType string) {
	var b bytes.Buffer
	switch {
	case !object.IsObject():
		return nil, ""
	case format == "ollama-chat", format == "ollama-generate":
		b.WriteString(object.Get("@ugly").Raw)
		b.WriteByte('\n')
		return b.Bytes(), typeNDJSON
	case format == "openai-chat" && object.Get("choices.0.message").IsObject():
		writeData(&b, chunkOf(object))
		b.WriteString("data: [DONE]\n\n")
	case format == "openai-completions" && object.Get("choices.0.text").Exists():
		writeData(&b, object.Get("@ugly").Raw)
		b.WriteString("data: [DONE]\n\n")
	case format == "openai-responses" && object.Get("output").IsArray():
		writeData(&b, closingOf(object))
	case format == "anthropic-messages" && object.Get("content").IsArray():
		writeMessage(&b, object)
	default:
		return nil, ""
	}
	return b.Bytes(), typeSSE
}

func writeData(b *bytes.Buffer, data string) {
	b.WriteString("data: ")
	b.WriteString(data)
	b.WriteString("\n\n")
}

// chunkOf returns a chat completion as a chunk of its stream.
func chunkOf(object gjson.Result) string {
	var b bytes.Buffer
	b.WriteString(`{"object":"chat.completion.chunk"`)
	for _, name := range []string{"id", "created", "model", "usage"} {
		if value := object.Get(name); value.Exists() {
			b.WriteString(`,"` + name + `":` + value.Get("@ugly").Raw)
		}
	}
	b.WriteString(`,"choices":[`)
	for i, choice := range object.Get("choices").Array() {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`{"index":` + strconv.Itoa(int(choice.Get("index").Int())))
		b.WriteString(`,"delta":` + choice.Get("message.@ugly").Raw)
		if finish := choice.Get("finish_reason"); finish.Exists() {
			b.WriteString(`,"finish_reason":` + finish.Raw)
		}
		b.WriteByte('}')
	}
	b.WriteString("]}")
	return b.String()
}

// closingOf returns a response of Responses as the event that ends its stream.
func closingOf(object gjson.Result) string {
	kind := "response.completed"
	switch object.Get("status").String() {
	case "failed":
		kind = "response.failed"
	case "incomplete":
		kind = "response.incomplete"
	}
	return `{"type":"` + kind + `","response":` + object.Get("@ugly").Raw + `}`
}

// writeMessage writes a message of Anthropic's as its stream.
func writeMessage(b *bytes.Buffer, object gjson.Result) {
	member := func(name string) string {
		if value := object.Get(name); value.Exists() {
			return value.Get("@ugly").Raw
		}
		return "null"
	}
	writeData(b, `{"type":"message_start","message":{"type":"message","role":"assistant","content":[],"id":`+member("id")+
		`,"model":`+member("model")+`,"usage":`+member("usage")+`}}`)
	for i, block := range object.Get("content").Array() {
		at := `,"index":` + strconv.Itoa(i)
		start, delta := block.Get("@ugly").Raw, ""
		switch block.Get("type").String() {
		case "text":
			start, delta = `{"type":"text","text":""}`, `{"type":"text_delta","text":`+block.Get("text").Raw+`}`
		case "thinking":
			start, delta = `{"type":"thinking","thinking":""}`, `{"type":"thinking_delta","thinking":`+block.Get("thinking").Raw+`}`
		}
		writeData(b, `{"type":"content_block_start"`+at+`,"content_block":`+start+`}`)
		if delta != "" {
			writeData(b, `{"type":"content_block_delta"`+at+`,"delta":`+delta+`}`)
		}
		writeData(b, `{"type":"content_block_stop"`+at+`}`)
	}
	writeData(b, `{"type":"message_delta","delta":{"stop_reason":`+member("stop_reason")+`},"usage":`+member("usage")+`}`)
	writeData(b, `{"type":"message_stop"}`)
}
