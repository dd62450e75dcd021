package provider

import (
	"bytes"
	"encoding/base64"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// bedrockInvoke decodes the frames of Amazon Bedrock's
// InvokeModelWithResponseStream:
// https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_InvokeModelWithResponseStream.html
//
// Every frame is a chunk with an event in base64, in the format of the model's
// own API. The last one has metrics of Bedrock's beside it.
type bedrockInvoke struct {
	inner   Decoder
	chunk   []byte // memory for the event of a chunk
	counted bool   // the model's own API has told token counts
}

func newBedrockInvoke() Decoder { return new(bedrockInvoke) }

// isBedrockInvoke tells a chunk by the event in it. Agents send chunks too,
// with text in them.
func isBedrockInvoke(p probe) bool {
	if p.name != "chunk" {
		return false
	}
	chunk, err := base64.StdEncoding.DecodeString(p.object.Get("bytes").Str)
	return err == nil && newModelDecoder(chunk) != nil
}

// modelFormats are the formats of the models that Bedrock has, in the order in
// which they are tried.
var modelFormats = []struct {
	matches func(probe) bool
	new     func() Decoder
}{
	{isAnthropic, newAnthropic},
	{isNova, func() Decoder { return new(nova) }},
	{isCohereV1, newCohereV1},
	{isOpenAIChat, newOpenAIChat},
	{isOpenAICompletions, newOpenAICompletions},
	{isBedrockModel, func() Decoder { return new(bedrockModel) }},
}

// newModelDecoder returns a decoder for the format of an event, nil where the
// event tells none.
func newModelDecoder(chunk []byte) Decoder {
	p := probe{object: objectOf(chunk)}
	if !p.object.Exists() {
		return nil
	}
	for _, f := range modelFormats {
		if f.matches(p) {
			return f.new()
		}
	}
	return nil
}

// invocationMetrics is the member of the last event that is Bedrock's.
const invocationMetrics = "amazon-bedrock-invocationMetrics"

// Decode translates one chunk.
func (d *bedrockInvoke) Decode(ev sse.Event, out *Events) error {
	if string(ev.Name) != "chunk" {
		return nil
	}
	if !d.unwrap(ev.Data) {
		return errInvalid
	}
	if d.inner == nil {
		if d.inner = newModelDecoder(d.chunk); d.inner == nil {
			return errInvalid
		}
	}
	start := len(out.list)
	if err := d.inner.Decode(sse.Event{Data: d.chunk}, out); err != nil {
		return err
	}
	if inner := (sse.Event{Data: d.chunk}); out.hasError && isBlatant(inner) {
		out.Fail(inner)
		return nil
	}
	d.conclude(start, out)
	return nil
}

// unwrap takes the event out of a chunk.
func (d *bedrockInvoke) unwrap(chunk []byte) bool {
	var encoded []byte
	c := json.MakeCursor(chunk)
	for ok := c.Open('{'); ok; ok = c.More('{') {
		if string(c.Key()) == "bytes" {
			encoded = c.Str()
		} else {
			c.Skip()
		}
	}
	if !c.End() || encoded == nil {
		return false
	}
	if cap(d.chunk) > maxKeptText {
		d.chunk = nil
	}
	var err error
	d.chunk, err = base64.StdEncoding.AppendDecode(d.chunk[:0], encoded)
	return err == nil
}

// conclude ends the response after the event with the metrics. The model's end
// waits for that, since it is the metrics that have the token counts of the
// models whose APIs have none.
func (d *bedrockInvoke) conclude(start int, out *Events) {
	ended := false
	kept := out.list[:start]
	for _, ev := range out.list[start:] {
		switch ev.Kind {
		case event.End:
			ended = true
			continue
		case event.Usage:
			d.counted = true
		case event.Text, event.Reasoning, event.Refusal, event.ToolCall, event.Finish, event.Done, event.Failed:
		}
		kept = append(kept, ev)
	}
	out.list = kept
	if bytes.Contains(d.chunk, []byte(invocationMetrics)) {
		metrics := gjson.GetBytes(d.chunk, invocationMetrics)
		ended = ended || metrics.IsObject()
		if !d.counted {
			var counts apartCounts
			out.Usage(counts.read(json.NewCursor([]byte(metrics.Raw))))
		}
	}
	if ended {
		out.End()
	}
}

// nova decodes the events of Amazon Nova, which are those of ConverseStream
// with the name of each as the name of its only member.
type nova struct{ bedrockConverse }

func isNova(p probe) bool {
	for _, name := range []string{"messageStart", "contentBlockStart", "contentBlockDelta", "messageStop"} {
		if isObject(p.object, name) {
			return true
		}
	}
	return false
}

// Decode translates one event.
func (d *nova) Decode(ev sse.Event, out *Events) error {
	c := json.MakeCursor(ev.Data)
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch name := string(c.Key()); name {
		case "messageStart", "contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata":
			d.decode(name, &c, out)
		default:
			c.Skip()
		}
	}
	if !out.whole(&c) {
		return errInvalid
	}
	return nil
}

var (
	_ Decoder = (*bedrockInvoke)(nil)
	_ Decoder = (*nova)(nil)
)
