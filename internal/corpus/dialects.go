package corpus

import (
	"encoding/json"
	"fmt"
	"sort"
	"strconv"
	"strings"
)

// frame is one server-sent event.
type frame struct{ name, data string }

// frames splits a stream of ours, whose frames are whole. Comments are
// dropped.
func frames(stream string) []frame {
	var list []frame
	var f frame
	for line := range strings.Lines(stream) {
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); {
		case line == "":
			if f.data != "" {
				list = append(list, f)
			}
			f = frame{}
		case field == "event":
			f.name = value
		case field == "data":
			f.data = value
		}
	}
	return list
}

// ReadDialect puts together what a client of a dialect makes of a stream. An
// error is a stream that no client would accept.
func ReadDialect(dialect, stream string) (Answer, error) {
	switch dialect {
	case "text":
		return readText(stream)
	case "plain":
		return Answer{Text: Content(stream)}, nil
	case "openai":
		return readOpenAI(stream)
	case "anthropic":
		return readAnthropic(stream)
	case "ai-sdk":
		return readAISDK(stream)
	}
	return Answer{}, fmt.Errorf("no dialect %q", dialect)
}

// wireError is an error object of ours.
type wireError struct {
	Type, Code string
	Upstream   map[string]any
}

// ReadError puts an error body or the data of an error frame into an answer.
func ReadError(data []byte) (Answer, error) {
	var body struct{ Error *wireError }
	if err := json.Unmarshal(data, &body); err != nil || body.Error == nil {
		return Answer{}, fmt.Errorf("no error: %.200s", data)
	}
	return Answer{Terminal: "error", Code: body.Error.Code, Upstream: body.Error.Upstream}, nil
}

// fail notes an error in an answer.
func (a *Answer) fail(data string) error {
	failed, err := ReadError([]byte(data))
	a.Terminal, a.Code, a.Upstream = failed.Terminal, failed.Code, failed.Upstream
	return err
}

func readText(stream string) (a Answer, err error) {
	for _, f := range frames(stream) {
		var d struct {
			Text, ID, Name, Arguments string
			Choice, Index             int
			FinishReason              string          `json:"finish_reason"`
			ProviderFinish            string          `json:"provider_finish_reason"`
			Usage                     json.RawMessage `json:"usage"`
		}
		if err := json.Unmarshal([]byte(f.data), &d); err != nil {
			return a, fmt.Errorf("%.200s: %w", f.data, err)
		}
		if a.Terminal != "" {
			return a, fmt.Errorf("%.200s after the end", f.data)
		}
		switch {
		case f.name == "done":
			a.Terminal, a.FinishReason, a.ProviderFinish, a.Usage = "done", d.FinishReason, d.ProviderFinish, d.Usage
		case f.name == "error":
			err = a.fail(f.data)
		case d.Choice != 0:
			if a.Choices == nil {
				a.Choices = map[string]Content{}
			}
			a.Choices[strconv.Itoa(d.Choice)] += Content(d.Text)
		case f.name == "reasoning":
			a.Reasoning += Content(d.Text)
		case f.name == "refusal":
			a.Refusal += Content(d.Text)
		case f.name == "tool_call":
			if d.ID != "" || d.Name != "" {
				a.ToolCalls = append(a.ToolCalls, AnswerCall{ID: d.ID, Name: d.Name})
			}
			if d.Index >= len(a.ToolCalls) {
				return a, fmt.Errorf("%.200s of no call", f.data)
			}
			a.ToolCalls[d.Index].Arguments += Content(d.Arguments)
		default:
			a.Text += Content(d.Text)
		}
		if err != nil {
			return a, err
		}
	}
	return a, nil
}

// openAIChunk is what is read of a chunk.
type openAIChunk struct {
	ID      string
	Choices []struct {
		Index int
		Delta struct {
			Content, Refusal string
			Reasoning        string `json:"reasoning_content"`
			ToolCalls        []struct {
				Index    int
				ID, Type string
				Function struct{ Name, Arguments string }
			} `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

func readOpenAI(stream string) (a Answer, err error) {
	a.WholeChunks, a.OneID = true, true
	id := ""
	for _, f := range frames(stream) {
		if f.data == "[DONE]" {
			a.Terminal = "done"
			continue
		}
		if strings.HasPrefix(f.data, `{"error":`) {
			if err := a.fail(f.data); err != nil {
				return a, err
			}
			continue
		}
		var d openAIChunk
		if err := json.Unmarshal([]byte(f.data), &d); err != nil {
			return a, fmt.Errorf("%.200s: %w", f.data, err)
		}
		if id == "" {
			id = d.ID
		}
		a.OneID = a.OneID && d.ID == id && id != ""
		a.WholeChunks = a.WholeChunks && isWhole(f.data)
		if d.Usage != nil {
			a.Usage = d.Usage
		}
		if err := a.addChoices(&d); err != nil {
			return a, err
		}
	}
	return a, nil
}

// addChoices adds the deltas of a chunk.
func (a *Answer) addChoices(d *openAIChunk) error {
	for _, c := range d.Choices {
		if c.Index != 0 {
			if a.Choices == nil {
				a.Choices = map[string]Content{}
			}
			a.Choices[strconv.Itoa(c.Index)] += Content(c.Delta.Content)
			continue
		}
		a.Text += Content(c.Delta.Content)
		a.Reasoning += Content(c.Delta.Reasoning)
		a.Refusal += Content(c.Delta.Refusal)
		if c.FinishReason != nil {
			a.FinishReason = *c.FinishReason
		}
		for _, call := range c.Delta.ToolCalls {
			if call.Type != "" {
				a.ToolCalls = append(a.ToolCalls, AnswerCall{ID: call.ID, Name: call.Function.Name})
			}
			if call.Index >= len(a.ToolCalls) {
				return fmt.Errorf("a fragment of no call %d", call.Index)
			}
			a.ToolCalls[call.Index].Arguments += Content(call.Function.Arguments)
		}
	}
	return nil
}

// isWhole reports whether a chunk has all of its members.
func isWhole(data string) bool {
	var chunk map[string]json.RawMessage
	var choices []map[string]json.RawMessage
	if json.Unmarshal([]byte(data), &chunk) != nil || json.Unmarshal(chunk["choices"], &choices) != nil {
		return false
	}
	for _, name := range []string{"id", "object", "created", "model", "choices"} {
		if chunk[name] == nil {
			return false
		}
	}
	for _, choice := range choices {
		for _, name := range []string{"index", "delta", "finish_reason"} {
			if choice[name] == nil {
				return false
			}
		}
	}
	return string(chunk["object"]) == `"chat.completion.chunk"`
}

func readAnthropic(stream string) (a Answer, err error) {
	for _, f := range frames(stream) {
		var d struct {
			Message struct{ Usage json.RawMessage }
			Block   struct{ Type, ID, Name string } `json:"content_block"`
			Delta   struct {
				Text, Thinking string
				PartialJSON    string `json:"partial_json"`
				StopReason     string `json:"stop_reason"`
			}
			Usage json.RawMessage
		}
		if err := json.Unmarshal([]byte(f.data), &d); err != nil {
			return a, fmt.Errorf("%.200s: %w", f.data, err)
		}
		switch f.name {
		case "message_start":
			a.StartUsage = d.Message.Usage
		case "content_block_start":
			if d.Block.Type == "tool_use" {
				a.ToolCalls = append(a.ToolCalls, AnswerCall{ID: d.Block.ID, Name: d.Block.Name})
			}
		case "content_block_delta":
			a.Text += Content(d.Delta.Text)
			a.Reasoning += Content(d.Delta.Thinking)
			if n := len(a.ToolCalls); n > 0 {
				a.ToolCalls[n-1].Arguments += Content(d.Delta.PartialJSON)
			}
		case "message_delta":
			a.FinishReason = d.Delta.StopReason
			if strings.Contains(string(d.Usage), "input_tokens") { // else it only has what the SDKs need
				a.Usage = d.Usage
			}
		case "message_stop":
			a.Terminal = "done"
		case "error":
			if err := a.fail(f.data); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

func readAISDK(stream string) (a Answer, err error) {
	calls := map[string]int{}
	available := map[string]Content{}
	for _, f := range frames(stream) {
		if f.data == "[DONE]" {
			continue
		}
		var d struct {
			Type, Delta, ErrorText, FinishReason string
			ToolCallID, ToolName                 string
			Input                                json.RawMessage
		}
		if err := json.Unmarshal([]byte(f.data), &d); err != nil {
			return a, fmt.Errorf("%.200s: %w", f.data, err)
		}
		switch d.Type {
		case "text-delta":
			a.Text += Content(d.Delta)
		case "reasoning-delta":
			a.Reasoning += Content(d.Delta)
		case "tool-input-start":
			calls[d.ToolCallID] = len(a.ToolCalls)
			a.ToolCalls = append(a.ToolCalls, AnswerCall{ID: d.ToolCallID, Name: d.ToolName})
		case "tool-input-available":
			available[d.ToolCallID] = Content(d.Input)
		case "finish":
			a.Terminal, a.FinishReason = "done", d.FinishReason
		case "error":
			a.Terminal = "error"
			a.Code, _, _ = strings.Cut(d.ErrorText, ":")
		}
	}
	ids := make([]string, 0, len(available))
	for id := range available {
		ids = append(ids, id)
	}
	sort.Strings(ids)
	for _, id := range ids {
		a.ToolCalls[calls[id]].Arguments = available[id]
	}
	return a, nil
}
