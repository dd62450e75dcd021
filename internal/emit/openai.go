package emit

import (
	"bufio"
	"maps"
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

// OpenAI encodes the chunks of OpenAI's chat completions. Every chunk is whole:
// it has id, object, created and model, and its choice an index, a delta and a
// finish_reason, which is null until the end. Typed clients fail on less.
//
//   - The role has a chunk of its own before the first delta of each choice.
//   - A call that has no arguments gets {}, since clients parse them.
//   - Each choice has a last chunk with its finish_reason.
//   - Reasoning is reasoning_content, which is no field of OpenAI's but the one
//     that most clients know.
//
// An error is a frame {"error":{…}} and no [DONE].
type OpenAI struct {
	opts   OpenAIOptions
	head   []byte                   // how every chunk begins, up to the index of its choice
	opened map[int]bool             // the choices whose role has been written
	last   int                      // the choice of the last delta, which is opened once head is there
	bare   map[int]map[int]struct{} // by choice, the calls that have no arguments yet
}

// NewOpenAI returns an encoder for one client of a response.
func NewOpenAI(o OpenAIOptions) *OpenAI {
	if o.Created.IsZero() {
		o.Created = time.Now()
	}
	return &OpenAI{opts: o}
}

// SetModel implements ModelSetter.
func (o *OpenAI) SetModel(model string) {
	o.opts.Model = model
	if o.head != nil {
		o.makeHead()
	}
}

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
		b = AppendOpenAIError(b, ev.Err, o.opts.ResponseID)
		_, _ = w.Write(append(b, "\n\n"...))
	default: // facts for a Reader, which no log holds
	}
}

// endOfDelta ends a chunk after the members of its delta.
const endOfDelta = `},"finish_reason":null}]}` + "\n\n"

func (o *OpenAI) writeDelta(w *bufio.Writer, ev *event.Event, member string) {
	o.open(w, ev.Choice)
	b := o.appendDelta(w, ev.Choice)
	b = append(b, member...)
	writeText(w, b, ev.Text, `"`+endOfDelta)
}

func (o *OpenAI) writeToolCall(w *bufio.Writer, ev *event.Event) {
	o.open(w, ev.Choice)
	b := o.appendCall(w, ev.Choice, ev.Tool.Index)
	if opensCall(ev) {
		b = append(b, `"id":"`...)
		b = appendCallID(b, "call_", o.opts.ResponseID, ev)
		b = append(b, `","type":"function","function":{"name":"`...)
		b = json.Append(b, ev.Tool.Name)
		b = append(b, `","arguments":"`...)
		o.setBare(ev.Choice, ev.Tool.Index)
	} else {
		b = append(b, `"function":{"arguments":"`...)
	}
	if len(ev.Text) > 0 {
		delete(o.bare[ev.Choice], ev.Tool.Index)
	}
	writeText(w, b, ev.Text, `"}}]`+endOfDelta)
}

// setBare notes that a call has no arguments yet.
func (o *OpenAI) setBare(choice, index int) {
	if o.bare == nil {
		o.bare = make(map[int]map[int]struct{})
	}
	if o.bare[choice] == nil {
		o.bare[choice] = make(map[int]struct{})
	}
	o.bare[choice][index] = struct{}{}
}

// writeEnd writes the finish of every choice, the usage and the end.
func (o *OpenAI) writeEnd(w *bufio.Writer, r *event.Result) {
	if len(r.Choices) == 0 {
		o.writeFinish(w, 0, r.Finish)
	}
	for _, c := range r.Choices {
		o.writeFinish(w, c.Choice, c.Finish)
	}
	if o.opts.IncludeUsage && r.Usage != nil {
		o.writeUsage(w, r.Usage)
	}
	_, _ = w.WriteString("data: [DONE]\n\n")
}

// writeUsage writes the chunk with the token counts.
func (o *OpenAI) writeUsage(w *bufio.Writer, u *event.TokenUsage) {
	b := append(reserve(w, 2*headRoom+len(o.head)), o.head[:len(o.head)-len(firstChoice)]...)
	b = append(b, `],"usage":{`...)
	b = appendCount(b, "prompt_tokens", u.Input)
	b = appendCount(b, "completion_tokens", u.Output)
	if u.Input >= 0 && u.Output >= 0 {
		b = appendCount(b, "total_tokens", u.Input+u.Output)
	}
	if u.CachedInput > 0 {
		b = append(b, `,"prompt_tokens_details":{`...)
		b = append(appendCount(b, "cached_tokens", u.CachedInput), '}')
	}
	if u.Reasoning > 0 {
		b = append(b, `,"completion_tokens_details":{`...)
		b = append(appendCount(b, "reasoning_tokens", u.Reasoning), '}')
	}
	_, _ = w.Write(append(b, "}}\n\n"...))
}

func (o *OpenAI) writeFinish(w *bufio.Writer, choice int, reason event.FinishReason) {
	o.open(w, choice)
	if reason == event.FinishToolCalls {
		o.writeNoArguments(w, choice)
	}
	b := o.appendDelta(w, choice)
	b = append(b, `},"finish_reason":"`...)
	b = append(b, openAIFinish(reason)...)
	_, _ = w.Write(append(b, "\"}]}\n\n"...))
}

// writeNoArguments gives the calls of a choice that have no arguments the
// empty object.
func (o *OpenAI) writeNoArguments(w *bufio.Writer, choice int) {
	for _, index := range slices.Sorted(maps.Keys(o.bare[choice])) {
		b := append(o.appendCall(w, choice, index), `"function":{"arguments":"{}"}}]`...)
		_, _ = w.Write(append(b, endOfDelta...))
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
	if o.head != nil && (choice == o.last || o.opened[choice]) {
		o.last = choice
		return
	}
	if o.head == nil {
		o.makeHead()
		o.opened = make(map[int]bool, 1)
	}
	o.last, o.opened[choice] = choice, true
	b := append(o.appendDelta(w, choice), `"role":"assistant"`...)
	_, _ = w.Write(append(b, endOfDelta...))
}

// firstChoice is what head ends with, and a chunk without a choice has not.
const firstChoice = `{"index":`

// makeHead puts together how every chunk begins.
func (o *OpenAI) makeHead() {
	b := append(o.head[:0], `data: {"id":"chatcmpl-`...)
	b = append(b, o.opts.ResponseID...)
	b = append(b, `","object":"chat.completion.chunk","created":`...)
	b = strconv.AppendInt(b, o.opts.Created.Unix(), 10)
	b = append(b, `,"model":"`...)
	b = json.Append(b, o.opts.Model)
	o.head = append(b, `","choices":[`+firstChoice...)
}

// appendCall appends a chunk up to what follows the index of a tool call.
func (o *OpenAI) appendCall(w *bufio.Writer, choice, index int) []byte {
	b := o.appendDelta(w, choice)
	b = append(b, `"tool_calls":[{"index":`...)
	b = strconv.AppendInt(b, int64(index), 10)
	return append(b, ',')
}

// appendDelta appends a chunk up to and with the opening brace of its delta to
// the free memory of w.
func (o *OpenAI) appendDelta(w *bufio.Writer, choice int) []byte {
	b := append(reserve(w, headRoom+len(o.head)), o.head...)
	b = strconv.AppendInt(b, int64(choice), 10)
	return append(b, `,"delta":{`...)
}

var (
	_ Encoder     = (*OpenAI)(nil)
	_ ModelSetter = (*OpenAI)(nil)
)
