package llmsim

import (
	"encoding/json"
	"fmt"
	"strconv"
)

// object is a JSON object. Ollama's responses have their members in the order of
// their names.
type object = map[string]any

// list is a JSON array.
type list = []any

// ollamaResponsesWriter writes OpenAI's responses as Ollama does: an item of
// reasoning where there is any, then one of text or of a tool call.
type ollamaResponsesWriter struct {
	res      *response
	sequence int64 // the number of the next event

	// The IDs of the response and its items. Those of reasoning and call are
	// others in an answer that is not streamed.
	id, messageID, reasoningID, callID string
}

func newOllamaResponsesWriter(res *response) writer {
	return &ollamaResponsesWriter{
		res:         res,
		id:          fmt.Sprintf("resp_%d", res.number),
		messageID:   fmt.Sprintf("msg_%d", res.number),
		reasoningID: fmt.Sprintf("rs_%d", res.number),
		callID:      fmt.Sprintf("fc_%d_0", res.number),
	}
}

func (o *ollamaResponsesWriter) contentType() string { return eventStreamType }

// answerIndex is the index of the answer's item.
func (o *ollamaResponsesWriter) answerIndex() int { return min(o.res.reasoning, 1) }

// appendEvent appends an event with more members than its type and number.
func (o *ollamaResponsesWriter) appendEvent(dst []byte, name string, data object) []byte {
	data["type"], data["sequence_number"] = name, o.sequence
	o.sequence++
	b, err := json.Marshal(data) // which escapes HTML, as Ollama does
	if err != nil {
		panic(err) // data is of our own types, which all have a JSON form
	}
	return fmt.Appendf(dst, "event: %s\ndata: %s\n\n", name, b)
}

// appendSequence appends the member that numbers an event.
func (o *ollamaResponsesWriter) appendSequence(dst []byte) []byte {
	dst = strconv.AppendInt(append(dst, `,"sequence_number":`...), o.sequence, 10)
	o.sequence++
	return dst
}

func (o *ollamaResponsesWriter) appendOpening(dst []byte) []byte {
	for _, name := range []string{"response.created", "response.in_progress"} {
		dst = o.appendEvent(dst, name, object{"response": o.object("in_progress", list{}, nil, nil)})
	}
	return dst
}

func (o *ollamaResponsesWriter) appendOutput(dst []byte, k int) []byte {
	what, i := o.res.step(k)
	if what == kindReasoning {
		if i == 0 {
			dst = o.appendEvent(dst, "response.output_item.added", object{
				"output_index": 0, "item": object{"id": o.reasoningID, "type": "reasoning", "summary": list{}},
			})
		}
		return o.appendReasoningDelta(dst, k)
	}
	if i == 0 && o.res.reasoning > 0 {
		dst = o.appendReasoningDone(dst)
	}
	if what == kindTool {
		return o.appendToolCall(dst)
	}
	if i == 0 {
		dst = o.appendTextStart(dst)
	}
	return o.appendTextDelta(dst, k)
}

func (o *ollamaResponsesWriter) appendReasoningDelta(dst []byte, k int) []byte {
	const name = "response.reasoning_summary_text.delta"
	dst = append(dst, "event: "+name+"\ndata: {\"delta\":"...)
	dst = o.res.appendToken(dst, 0, k, true)
	dst = append(append(dst, `,"item_id":"`...), o.reasoningID...)
	dst = o.appendSequence(append(dst, `","output_index":0`...))
	return append(dst, ",\"summary_index\":0,\"type\":\""+name+"\"}\n\n"...)
}

func (o *ollamaResponsesWriter) appendReasoningDone(dst []byte) []byte {
	dst = o.appendEvent(dst, "response.reasoning_summary_text.done", object{
		"item_id": o.reasoningID, "output_index": 0, "summary_index": 0, "text": ReasoningText(o.res.reasoning),
	})
	return o.appendEvent(dst, "response.output_item.done", object{
		"output_index": 0, "item": o.reasoningItem(o.reasoningID),
	})
}

func (o *ollamaResponsesWriter) appendTextStart(dst []byte) []byte {
	dst = o.appendEvent(dst, "response.output_item.added", object{
		"output_index": o.answerIndex(), "item": o.messageItem("in_progress", list{}),
	})
	return o.appendEvent(dst, "response.content_part.added", object{
		"item_id": o.messageID, "output_index": o.answerIndex(), "content_index": 0, "part": textPart(""),
	})
}

func (o *ollamaResponsesWriter) appendTextDelta(dst []byte, k int) []byte {
	const name = "response.output_text.delta"
	dst = append(dst, "event: "+name+"\ndata: {\"content_index\":0,\"delta\":"...)
	dst = o.res.appendToken(dst, 0, k, true)
	dst = append(append(dst, `,"item_id":"`...), o.messageID...)
	dst = strconv.AppendInt(append(dst, `","logprobs":[],"output_index":`...), int64(o.answerIndex()), 10)
	return append(o.appendSequence(dst), ",\"type\":\""+name+"\"}\n\n"...)
}

func (o *ollamaResponsesWriter) appendTextDone(dst []byte) []byte {
	text := o.res.text()
	at := func(name string, value any) object {
		return object{"item_id": o.messageID, "output_index": o.answerIndex(), "content_index": 0, name: value}
	}
	done := at("text", text)
	done["logprobs"] = list{}
	dst = o.appendEvent(dst, "response.output_text.done", done)
	dst = o.appendEvent(dst, "response.content_part.done", at("part", textPart(text)))
	return o.appendEvent(dst, "response.output_item.done", object{
		"output_index": o.answerIndex(), "item": o.messageItem("completed", list{textPart(text)}),
	})
}

func (o *ollamaResponsesWriter) appendToolCall(dst []byte) []byte {
	at := func(name string, value any) object {
		return object{"item_id": o.callID, "output_index": o.answerIndex(), name: value}
	}
	dst = o.appendEvent(dst, "response.output_item.added", object{
		"output_index": o.answerIndex(), "item": o.callItem(o.callID, "in_progress", ""),
	})
	dst = o.appendEvent(dst, "response.function_call_arguments.delta", at("delta", ToolArguments))
	dst = o.appendEvent(dst, "response.function_call_arguments.done", at("arguments", ToolArguments))
	return o.appendEvent(dst, "response.output_item.done", object{
		"output_index": o.answerIndex(), "item": o.callItem(o.callID, "completed", ToolArguments),
	})
}

func (o *ollamaResponsesWriter) appendFinish(dst []byte) []byte {
	switch {
	case o.res.answer == 0 && o.res.reasoning > 0:
		return o.appendReasoningDone(dst)
	case o.res.answer == 0 || o.res.callsTool():
		return dst
	default:
		return o.appendTextDone(dst)
	}
}

func (o *ollamaResponsesWriter) appendTerminator(dst []byte) []byte {
	output := o.output(o.reasoningID, o.callID)
	return o.appendEvent(dst, "response.completed", object{"response": o.object("completed", output, o.usage(), o.created())})
}

// appendError appends nothing, as Ollama does.
func (o *ollamaResponsesWriter) appendError(dst []byte, _ string) []byte { return dst }

func (o *ollamaResponsesWriter) whole() any {
	output := o.output("rs_"+o.id, "fc_"+o.id+"_0")
	if o.res.answer == 0 { // which is an item only here
		output = append(output, o.messageItem("completed", list{textPart("")}))
	}
	return o.object("completed", output, o.usage(), o.created())
}

// output returns the items of a response that is complete, nil where there is
// none.
func (o *ollamaResponsesWriter) output(reasoningID, callID string) list {
	var items list
	if o.res.reasoning > 0 {
		items = append(items, o.reasoningItem(reasoningID))
	}
	switch {
	case o.res.callsTool():
		items = append(items, o.callItem(callID, "completed", ToolArguments))
	case o.res.answer > 0:
		items = append(items, o.messageItem("completed", list{textPart(o.res.text())}))
	}
	return items
}

func (o *ollamaResponsesWriter) reasoningItem(id string) object {
	text := ReasoningText(o.res.reasoning)
	return object{
		"id": id, "type": "reasoning", "summary": list{object{"type": "summary_text", "text": text}},
		"encrypted_content": text, // it is plain text
	}
}

func (o *ollamaResponsesWriter) messageItem(status string, content list) object {
	return object{"id": o.messageID, "type": "message", "status": status, "role": "assistant", "content": content}
}

func (o *ollamaResponsesWriter) callItem(id, status, arguments string) object {
	return object{
		"id": id, "type": "function_call", "status": status, "call_id": o.res.ollamaCallID(),
		"name": o.res.tool, "arguments": arguments,
	}
}

func textPart(text string) object {
	return object{"type": "output_text", "text": text, "annotations": list{}, "logprobs": list{}}
}

func (o *ollamaResponsesWriter) created() int64 { return o.res.created.Unix() }

func (o *ollamaResponsesWriter) usage() object {
	return object{
		"input_tokens": o.res.promptTokens, "input_tokens_details": object{"cached_tokens": 0},
		"output_tokens": o.res.steps(), "output_tokens_details": object{"reasoning_tokens": 0},
		"total_tokens": o.res.promptTokens + o.res.steps(),
	}
}

// object returns the response as it stands in its events. usage and completedAt
// are nil as long as it is not complete.
func (o *ollamaResponsesWriter) object(status string, output list, usage, completedAt any) object {
	return object{
		"id": o.id, "object": "response", "created_at": o.created(), "completed_at": completedAt, "status": status,
		"model": o.res.model, "output": output, "usage": usage, "tools": o.tools(), "tool_choice": "auto",
		"max_output_tokens": o.res.maxOutputTokens, "max_tool_calls": nil, "parallel_tool_calls": true,
		"error": nil, "incomplete_details": nil, "instructions": nil, "reasoning": nil, "previous_response_id": nil,
		"text": object{"format": object{"type": "text"}}, "truncation": "disabled",
		"temperature": 1, "top_p": 1, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0,
		"background": false, "store": false, "service_tier": "default", "metadata": object{},
		"safety_identifier": nil, "prompt_cache_key": nil,
	}
}

// tools returns those of the request.
func (o *ollamaResponsesWriter) tools() list {
	tools := make(list, 0, len(o.res.tools))
	for _, t := range o.res.tools {
		tools = append(tools, object{
			"type": t.Type, "name": t.Name, "description": t.Description, "strict": t.Strict, "parameters": t.Parameters,
		})
	}
	return tools
}

// Interface guard
var _ writer = (*ollamaResponsesWriter)(nil)
