package main

import (
	"context"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/anthropics/anthropic-sdk-go/option"
)

func askAnthropic(ctx context.Context, r run, got *outcome) error {
	client := anthropic.NewClient(option.WithAPIKey("none"), option.WithBaseURL(r.URL), option.WithMaxRetries(r.Retries))
	params := anthropic.MessageNewParams{
		Model: "sim-1", MaxTokens: 4096,
		Messages: []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock(question))},
	}
	if r.MaxTokens > 0 {
		params.MaxTokens = r.MaxTokens
	}
	if r.Tools {
		params.Tools = []anthropic.ToolUnionParam{{OfTool: &anthropic.ToolParam{Name: toolName}}}
	}
	stream := client.Messages.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	var message anthropic.Message
	for stream.Next() {
		event := stream.Current()
		if err := message.Accumulate(event); err != nil {
			return err
		}
		got.Ended = event.Type == "message_stop"
	}
	readMessage(&message, got)
	return stream.Err()
}

// readMessage reads what the SDK has put together.
func readMessage(m *anthropic.Message, got *outcome) {
	for _, block := range m.Content {
		switch block.Type {
		case "text":
			got.Text += block.Text
		case "thinking":
			got.Reasoning += block.Thinking
		case "tool_use":
			got.Tools = append(got.Tools, toolCall{block.ID, block.Name, string(block.Input)})
		}
	}
	got.Finish = string(m.StopReason)
	u := m.Usage // whose input tokens are those that no cache read or wrote
	got.Usage = &usage{u.InputTokens + u.CacheReadInputTokens + u.CacheCreationInputTokens, u.OutputTokens}
}
