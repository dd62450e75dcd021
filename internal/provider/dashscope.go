package provider

import (
	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// dashScope decodes the native streams of Alibaba's DashScope, of its models of
// text and of several media, and of its applications:
// https://help.aliyun.com/zh/model-studio/qwen-api-via-dashscope
//
// The text is in a message, as a string or a list of parts, or beside it as
// output.text where the request has not asked for messages. It is all of the
// text so far unless the request says incremental_output, as are reasoning and
// the arguments of tool calls, and the stream does not say which; see growing.
// While a choice goes on its finish_reason is the word "null". No event names
// the model, and nothing follows the last one.
//
// The documentation leaves open how the thoughts of an application grow, which
// come in a list beside the text: they count as work of the model, but are no
// event. The token counts of an application are those of each model that it has
// used, and are not read.
type dashScope struct {
	choices []dashScopeChoice
}

// dashScopeChoice is what is known of one choice.
type dashScopeChoice struct {
	seen      bool
	text      growing
	reasoning growing
	calls     []dashScopeCall // the last ones
	gone      int             // how many were before them
}

// dashScopeCall is one tool call.
type dashScopeCall struct {
	index int64
	id    string
	args  growing
}

func newDashScope() Decoder { return new(dashScope) }

func isDashScope(p probe) bool {
	output := p.object.Get("output")
	return isObject(output.Get("choices.0"), "message") ||
		output.Get("text").Type == gjson.String && output.Get("finish_reason").Exists()
}

// dashScopeMessage is what an output, or one choice of it, carries: the insides
// of strings, lists whole. What is not there is nil.
type dashScopeMessage struct {
	text      []byte
	parts     []byte
	reasoning []byte
	toolCalls []byte
	finish    []byte
}

// Decode translates one event.
func (d *dashScope) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	var id []byte
	usage := noUsage
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "output":
			d.decodeOutput(&c, out)
		case "usage":
			usage = decodeUsage(&c)
		case "request_id":
			id = c.Str()
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	out.Identify(nil, id)
	out.Usage(usage)
	return nil
}

// decodeOutput reads the output, which has choices or is itself the only one.
func (d *dashScope) decodeOutput(c *json.Cursor, out *Events) {
	var only dashScopeMessage
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "choices":
			first := true
			for ok := c.EnterOutput('['); ok; ok = c.More('[') {
				d.decodeChoice(c, first, out)
				first = false
			}
		case "text":
			only.text = c.Text()
		case "finish_reason":
			only.finish = c.Str()
		case "thoughts":
			if !isEmpty(c.Raw()) {
				out.Silent()
			}
		default:
			c.Skip()
		}
	}
	if !c.Bad() && (only.text != nil || only.finish != nil) {
		d.choice(0, out).emit(&only, 0, out)
	}
}

func (d *dashScope) decodeChoice(c *json.Cursor, first bool, out *Events) {
	var m dashScopeMessage
	index := int64(-1)
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "message":
			m.read(c)
		case "finish_reason":
			m.finish = c.Str()
		case "index":
			index = c.Count()
		default:
			c.Skip()
		}
	}
	at, ok := out.Choice(index, first && c.Peek() == ']')
	if !ok {
		c.Fail()
	}
	if !c.Bad() {
		d.choice(at, out).emit(&m, at, out)
	}
}

// choice returns the choice with this index.
func (d *dashScope) choice(index int, out *Events) *dashScopeChoice {
	for len(d.choices) <= index {
		d.choices = append(d.choices, dashScopeChoice{})
	}
	choice := &d.choices[index]
	if !choice.seen {
		choice.seen = true
		out.Open(index)
	}
	return choice
}

func (m *dashScopeMessage) read(c *json.Cursor) {
	for ok := c.EnterOutput('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "content":
			if c.Peek() == '[' {
				m.parts = c.Raw()
			} else {
				m.text = c.Text()
			}
		case "reasoning_content":
			m.reasoning = c.Str()
		case "tool_calls":
			m.toolCalls = c.Output('[')
		default:
			c.Skip()
		}
	}
}

// emit adds what a message carries.
func (ch *dashScopeChoice) emit(m *dashScopeMessage, index int, out *Events) {
	isLast := len(m.finish) > 0 && string(m.finish) != "null"
	ch.reasoning.said.add(out.Delta(event.Reasoning, index, ch.reasoning.next(m.reasoning, isLast)))
	ch.say(m.text, index, isLast, out)
	c := json.MakeCursor(m.parts)
	for ok := m.parts != nil && c.Open('['); ok; ok = c.More('[') {
		ch.say(c.Field("text"), index, isLast, out)
	}
	if m.toolCalls != nil {
		ch.emitCalls(m.toolCalls, index, isLast, out)
	}
	if isLast {
		out.Finish(index, m.finish)
	}
}

// say adds what is new in a text.
func (ch *dashScopeChoice) say(text []byte, index int, isLast bool, out *Events) {
	ch.text.said.add(out.Delta(event.Text, index, ch.text.next(text, isLast)))
}

// emitCalls adds what is new in the tool calls.
func (ch *dashScopeChoice) emitCalls(calls []byte, choice int, isLast bool, out *Events) {
	c := json.MakeCursor(calls)
	for ok := c.Open('['); ok; ok = c.More('[') {
		var f chatFragment
		for ok := c.Enter('{'); ok; ok = c.More('{') {
			switch string(c.Key()) {
			case "index":
				f.index = c.Count()
			case "id":
				f.id = c.Str()
			case "function":
				f.readFunction(&c)
			default:
				c.Skip()
			}
		}
		call, place, isNew := ch.call(&f)
		args := arguments{text: call.args.next(f.args.text, isLast), object: f.args.object}
		if isNew {
			tool := event.Tool{Index: place, ID: callID(f.id), Name: word(f.name)}
			call.args.said.add(out.OpenTool(choice, tool, args))
		} else {
			call.args.said.add(out.Tool(choice, place, args))
		}
	}
}

// call returns the tool call that a fragment is of, the index under which it is
// passed on, and whether this is the first fragment of it.
func (ch *dashScopeChoice) call(f *chatFragment) (call *dashScopeCall, index int, isNew bool) {
	for i := len(ch.calls) - 1; i >= 0; i-- {
		if call := &ch.calls[i]; call.index == f.index && (len(f.id) == 0 || isCallID(f.id, call.id)) {
			return call, ch.gone + i, false
		}
	}
	if len(ch.calls) == maxCalls {
		ch.calls = append(ch.calls[:0], ch.calls[maxCalls/2:]...)
		ch.gone += maxCalls / 2
	}
	ch.calls = append(ch.calls, dashScopeCall{index: f.index, id: callID(f.id)})
	last := len(ch.calls) - 1
	return &ch.calls[last], ch.gone + last, true
}

var _ Decoder = (*dashScope)(nil)
