package emit

import (
	"bufio"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// OpenAIOptions say what the OpenAI encoder must know of a response.
type OpenAIOptions struct {
	// ResponseID makes the id of the chunks: "chatcmpl-" and the response id.
	ResponseID string
	// Model is the name of the model, where it is known already.
	Model string
	// Created is when the response began; zero is now.
	Created time.Time
	// IncludeUsage is whether the client asked for a chunk with the token
	// counts (stream_options.include_usage).
	IncludeUsage bool
}

// OpenAI encodes the chunks of OpenAI's chat completions, with what the
// official SDKs read and nothing else:
//
//   - id in every chunk: the accumulator of openai-go refuses a chunk without
//     it, and openai-node ignores what stands beside choices in one;
//   - object, created and model in the first chunk, from which most SDKs take
//     them, and in the last ones, from which openai-go takes them;
//   - the role in a chunk of its own before the first delta of each choice;
//   - {} as the arguments of a call that has none, since clients parse them;
//   - finish_reason in a last chunk for each choice;
//   - reasoning as reasoning_content, which is no field of OpenAI's but the one
//     that most clients know.
//
// An error is a frame {"error":{…}} and no [DONE].
type OpenAI struct {
	opts   OpenAIOptions
	begun  bool         // the first chunk has been written
	opened map[int]bool // the choices whose role has been written
	last   int          // the choice of the last delta, which is opened once begun
	bare   []callKey    // the calls that have no arguments yet
}

// callKey names a tool call within a response.
type callKey struct{ choice, index int }

// NewOpenAI returns an encoder for one client of a response.
func NewOpenAI(o OpenAIOptions) *OpenAI {
	if o.Created.IsZero() {
		o.Created = time.Now()
	}
	return &OpenAI{opts: o}
}

// SetModel implements ModelSetter.
func (o *OpenAI) SetModel(model string) { o.opts.Model = model }

// Header implements Encoder.
func (o *OpenAI) Header(h http.Header) {
	setHeader(h, eventStream, o.opts.ResponseID)
}

// Encode implements Encoder.
func (o *OpenAI) Encode(w *bufio.Writer, _ int, ev *event.Event) {
	switch ev.Kind {
	case event.Text:
		o.writeDelta(w, ev, `"content":"`)
	case event.Reasoning:
		o.writeDelta(w, ev, `"reasoning_content":"`)
	case event.Refusal:
		o.writeDelta(w, ev, `"refusal":"`)
	case event.ToolCall:
		o.writeToolCall(w, ev)
	case event.Done:
		o.writeEnd(w, ev.Result)
	case event.Failed:
		b := append(reserve(w, headRoom), "data: "...)
		b = AppendError(b, ev.Err, o.opts.ResponseID)
		_, _ = w.Write(append(b, "\n\n"...))
	default: // facts for a Reader, which no log holds
	}
}

func (o *OpenAI) writeDelta(w *bufio.Writer, ev *event.Event, member string) {
	o.open(w, ev.Choice)
	b := o.appendDelta(w, ev.Choice)
	b = append(b, member...)
	writeText(w, b, ev.Text, "\"}}]}\n\n")
}

func (o *OpenAI) writeToolCall(w *bufio.Writer, ev *event.Event) {
	o.open(w, ev.Choice)
	key := callKey{ev.Choice, ev.Tool.Index}
	b := o.appendCall(w, key)
	if opensCall(ev) {
		b = append(b, `"id":"`...)
		b = appendCallID(b, "call_", o.opts.ResponseID, ev)
		b = append(b, `","type":"function","function":{"name":"`...)
		b = json.Append(b, ev.Tool.Name)
		b = append(b, `","arguments":"`...)
		o.bare = append(o.bare, key)
	} else {
		b = append(b, `"function":{"arguments":"`...)
	}
	if i := slices.Index(o.bare, key); i >= 0 && len(ev.Text) > 0 {
		o.bare = slices.Delete(o.bare, i, i+1)
	}
	writeText(w, b, ev.Text, "\"}}]}}]}\n\n")
}

// writeEnd writes the finish of every choice, the usage and the end.
func (o *OpenAI) writeEnd(w *bufio.Writer, r *event.Result) {
	if len(r.Choices) == 0 {
		o.writeFinish(w, 0, r.Finish)
	}
	for _, c := range r.Choices {
		o.writeFinish(w, c.Choice, c.Finish)
	}
	if u := r.Usage; o.opts.IncludeUsage && u != nil {
		b := o.appendHead(w)
		b = append(b, `"choices":[]`...)
		b = appendUsage(b, `,"usage":`, "prompt_tokens", "completion_tokens", u)
		if u.Input >= 0 && u.Output >= 0 {
			b = append(b[:len(b)-1], `,"total_tokens":`...)
			b = strconv.AppendInt(b, u.Input+u.Output, 10)
			b = append(b, '}')
		}
		_, _ = w.Write(append(b, "}\n\n"...))
	}
	_, _ = w.WriteString("data: [DONE]\n\n")
}

func (o *OpenAI) writeFinish(w *bufio.Writer, choice int, reason event.FinishReason) {
	o.open(w, choice)
	if reason == event.FinishToolCalls {
		o.writeNoArguments(w, choice)
	}
	b := o.appendHead(w)
	b = append(b, `"choices":[{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	b = append(b, `,"delta":{},"finish_reason":"`...)
	b = append(b, openAIFinish(reason)...)
	_, _ = w.Write(append(b, "\"}]}\n\n"...))
}

// writeNoArguments gives the calls of a choice that have no arguments the
// empty object.
func (o *OpenAI) writeNoArguments(w *bufio.Writer, choice int) {
	for _, key := range o.bare {
		if key.choice == choice {
			b := append(o.appendCall(w, key), `"function":{"arguments":"`...)
			_, _ = w.Write(append(b, "{}\"}}]}}]}\n\n"...))
		}
	}
}

// openAIFinish returns the nearest of the finish reasons that OpenAI knows:
// some SDKs fail on any other. What was cut short must not look whole.
func openAIFinish(reason event.FinishReason) string {
	switch reason {
	case event.FinishLength, event.FinishToolCalls, event.FinishContentFilter:
		return string(reason)
	case event.FinishCancelled:
		return string(event.FinishLength)
	default:
		return string(event.FinishStop)
	}
}

// open writes the chunk with the role before the first one of a choice.
func (o *OpenAI) open(w *bufio.Writer, choice int) {
	if o.begun && (choice == o.last || o.opened[choice]) {
		o.last = choice
		return
	}
	var b []byte
	if o.begun {
		b = append(o.appendID(w), ',')
	} else {
		b = o.appendHead(w)
		o.opened = make(map[int]bool, 1)
	}
	o.begun, o.last, o.opened[choice] = true, choice, true
	b = append(b, `"choices":[{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	_, _ = w.Write(append(b, ",\"delta\":{\"role\":\"assistant\"}}]}\n\n"...))
}

// appendCall appends a chunk up to what follows the index of a tool call.
func (o *OpenAI) appendCall(w *bufio.Writer, key callKey) []byte {
	b := o.appendDelta(w, key.choice)
	b = append(b, `"tool_calls":[{"index":`...)
	b = strconv.AppendInt(b, int64(key.index), 10)
	return append(b, ',')
}

// appendDelta appends a chunk up to and with the opening brace of its delta.
func (o *OpenAI) appendDelta(w *bufio.Writer, choice int) []byte {
	b := o.appendID(w)
	b = append(b, `,"choices":[{"index":`...)
	b = strconv.AppendInt(b, int64(choice), 10)
	return append(b, `,"delta":{`...)
}

// appendHead appends the members of a chunk that names everything.
func (o *OpenAI) appendHead(w *bufio.Writer) []byte {
	b := o.appendID(w)
	b = append(b, `,"object":"chat.completion.chunk","created":`...)
	b = strconv.AppendInt(b, o.opts.Created.Unix(), 10)
	b = append(b, `,"model":"`...)
	b = json.Append(b, o.opts.Model)
	return append(b, `",`...)
}

// appendID begins a chunk in the free memory of w.
func (o *OpenAI) appendID(w *bufio.Writer) []byte {
	b := reserve(w, headRoom+len(o.opts.ResponseID))
	b = append(b, `data: {"id":"chatcmpl-`...)
	b = append(b, o.opts.ResponseID...)
	return append(b, '"')
}

var (
	_ Encoder     = (*OpenAI)(nil)
	_ ModelSetter = (*OpenAI)(nil)
)
