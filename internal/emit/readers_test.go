package emit_test

import (
	"encoding/json"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// message is what a client has at the end of a response, of its first choice.
type message struct {
	text, reasoning string
	calls           []toolCall
	finish, model   string
	usage           int // output tokens
}

type toolCall struct{ id, name, arguments string }

// readers put a stream together as the clients of each dialect do, and fail
// the test where those would.
var readers = map[string]func(testing.TB, string) message{
	emit.DialectText:      readText,
	emit.DialectOpenAI:    readOpenAI,
	emit.DialectAnthropic: readAnthropic,
	emit.DialectAISDK:     readAISDK,
}

func decode(tb testing.TB, data string, v any) {
	tb.Helper()
	if err := json.Unmarshal([]byte(data), v); err != nil {
		tb.Fatalf("%s: %v", data, err)
	}
}

func readText(tb testing.TB, stream string) message {
	tb.Helper()
	var m message
	for _, f := range parseFrames(tb, stream) {
		var d struct {
			Text, ID, Name, Arguments string
			Index                     int
			FinishReason              string `json:"finish_reason"`
		}
		decode(tb, f.data, &d)
		switch f.event {
		case "":
			m.text += d.Text
		case "reasoning":
			m.reasoning += d.Text
		case "tool_call":
			if d.Name != "" {
				m.calls = append(m.calls, toolCall{id: d.ID, name: d.Name})
			}
			m.calls[d.Index].arguments += d.Arguments
		case "done":
			m.finish = d.FinishReason
		default:
			tb.Fatalf("event %q", f.event)
		}
	}
	return m
}

func readOpenAI(tb testing.TB, stream string) message {
	tb.Helper()
	var (
		m    message
		id   string
		role bool
	)
	frames := parseFrames(tb, stream)
	if frames[len(frames)-1].data != "[DONE]" {
		tb.Fatal("no [DONE]")
	}
	for _, f := range frames[:len(frames)-1] {
		var d struct {
			ID, Model string
			Choices   []struct {
				Delta struct {
					Role, Content string
					Reasoning     string `json:"reasoning_content"`
					ToolCalls     []struct {
						Index    int
						ID, Type string
						Function struct{ Name, Arguments string }
					} `json:"tool_calls"`
				}
				FinishReason string `json:"finish_reason"`
			}
			Usage struct {
				Output int `json:"completion_tokens"`
			}
		}
		decode(tb, f.data, &d)
		if id == "" {
			id = d.ID
		}
		if id == "" || d.ID != id {
			tb.Fatalf("chunk of id %q after %q", d.ID, id)
		}
		m.model, m.usage = d.Model, m.usage+d.Usage.Output
		for _, c := range d.Choices {
			role = role || c.Delta.Role == "assistant"
			m.text += c.Delta.Content
			m.reasoning += c.Delta.Reasoning
			for _, call := range c.Delta.ToolCalls {
				if call.Type == "function" {
					m.calls = append(m.calls, toolCall{id: call.ID, name: call.Function.Name})
				}
				m.calls[call.Index].arguments += call.Function.Arguments
			}
			if !role || m.finish != "" {
				tb.Fatalf("before the role or after the finish: %s", f.data)
			}
			m.finish = c.FinishReason
		}
	}
	return m
}

func readAnthropic(tb testing.TB, stream string) message {
	tb.Helper()
	var (
		m            message
		open, blocks = -1, 0
		stopped      bool
	)
	for _, f := range parseFrames(tb, stream) {
		var d struct {
			Type    string
			Index   int
			Message struct{ Model string }
			Block   struct{ Type, ID, Name string } `json:"content_block"`
			Delta   struct {
				Type, Text, Thinking string
				PartialJSON          string `json:"partial_json"`
				StopReason           string `json:"stop_reason"`
			}
			Usage struct {
				Output int `json:"output_tokens"`
			}
		}
		decode(tb, f.data, &d)
		if d.Type != f.event || stopped {
			tb.Fatalf("%s: %s", f.event, f.data)
		}
		switch d.Type {
		case "message_start":
			m.model = d.Message.Model
		case "content_block_start":
			if open != -1 || d.Index != blocks {
				tb.Fatalf("block %d begins while %d is open", d.Index, open)
			}
			open, blocks = d.Index, blocks+1
			if d.Block.Type == "tool_use" {
				m.calls = append(m.calls, toolCall{id: d.Block.ID, name: d.Block.Name})
			}
		case "content_block_delta":
			if d.Index != open {
				tb.Fatalf("delta of block %d while %d is open", d.Index, open)
			}
			m.text += d.Delta.Text
			m.reasoning += d.Delta.Thinking
			if d.Delta.Type == "input_json_delta" {
				m.calls[len(m.calls)-1].arguments += d.Delta.PartialJSON
			}
		case "content_block_stop":
			if d.Index != open {
				tb.Fatalf("block %d ends while %d is open", d.Index, open)
			}
			open = -1
		case "message_delta":
			m.finish, m.usage = d.Delta.StopReason, d.Usage.Output
		case "message_stop":
			stopped = true
		}
	}
	if open != -1 || !stopped {
		tb.Fatalf("block %d is open, stopped: %v", open, stopped)
	}
	return m
}

func readAISDK(tb testing.TB, stream string) message {
	tb.Helper()
	var (
		m         message
		open      string
		available int
		calls     = map[string]int{}
	)
	for _, f := range parseFrames(tb, stream) {
		if f.data == "[DONE]" {
			break
		}
		var d struct {
			Type, ID, Delta      string
			ToolCallID, ToolName string
			InputTextDelta       string
			Input                json.RawMessage
			FinishReason         string
		}
		decode(tb, f.data, &d)
		switch d.Type {
		case "text-start", "reasoning-start":
			if open != "" {
				tb.Fatalf("%s while %s is open", f.data, open)
			}
			open = d.ID
		case "text-delta", "reasoning-delta", "text-end", "reasoning-end":
			if d.ID != open {
				tb.Fatalf("%s while %s is open", f.data, open)
			}
			switch d.Type {
			case "text-delta":
				m.text += d.Delta
			case "reasoning-delta":
				m.reasoning += d.Delta
			default:
				open = ""
			}
		case "tool-input-start":
			calls[d.ToolCallID] = len(m.calls)
			m.calls = append(m.calls, toolCall{id: d.ToolCallID, name: d.ToolName})
		case "tool-input-delta":
			m.calls[calls[d.ToolCallID]].arguments += d.InputTextDelta
		case "tool-input-available":
			if c := m.calls[calls[d.ToolCallID]]; c.arguments != string(d.Input) {
				tb.Fatalf("input %s of %+v", d.Input, c)
			}
			available++
		case "finish":
			m.finish = d.FinishReason
		}
	}
	if open != "" || available != len(m.calls) {
		tb.Fatalf("part %q is open, %d of %d calls are available", open, available, len(m.calls))
	}
	return m
}
