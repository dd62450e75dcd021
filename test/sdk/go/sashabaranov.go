package main

import (
	"context"
	"errors"
	"io"

	openai "github.com/sashabaranov/go-openai"
)

// askSashabaranov asks with github.com/sashabaranov/go-openai. It counts every
// comment between two chunks as an empty line, and after 300 of them it gives
// up: heartbeats must not come more often than every 5 s. It also takes them for
// the beginning of an error frame, whose message is lost then.
func askSashabaranov(ctx context.Context, r run, got *outcome) error {
	config := openai.DefaultConfig("none")
	config.BaseURL = r.URL + "/v1"
	request := openai.ChatCompletionRequest{
		Model:         "sim-1",
		Messages:      []openai.ChatCompletionMessage{{Role: openai.ChatMessageRoleUser, Content: question}},
		StreamOptions: &openai.StreamOptions{IncludeUsage: true},
		MaxTokens:     int(r.MaxTokens),
		N:             int(r.Choices),
	}
	if r.Tools {
		request.Tools = []openai.Tool{{
			Type: openai.ToolTypeFunction, Function: &openai.FunctionDefinition{Name: toolName},
		}}
	}
	stream, err := openai.NewClientWithConfig(config).CreateChatCompletionStream(ctx, request)
	if err != nil {
		return err
	}
	defer func() { _ = stream.Close() }()
	for {
		chunk, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			got.Ended = true
			return nil
		}
		if err != nil {
			return err
		}
		readChunk(&chunk, got)
	}
}

// readChunk adds a chunk to what has come: the SDK puts nothing together.
func readChunk(chunk *openai.ChatCompletionStreamResponse, got *outcome) {
	if chunk.Usage != nil {
		got.Usage = &usage{int64(chunk.Usage.PromptTokens), int64(chunk.Usage.CompletionTokens)}
	}
	for _, choice := range chunk.Choices {
		if choice.Index != 0 {
			continue
		}
		delta := choice.Delta
		got.Text += delta.Content
		got.Reasoning += delta.ReasoningContent
		got.Refusal += delta.Refusal
		for _, call := range delta.ToolCalls {
			if call.Index == nil {
				continue // belongs to no call
			}
			if *call.Index == len(got.Tools) {
				got.Tools = append(got.Tools, toolCall{ID: call.ID, Name: call.Function.Name})
			}
			got.Tools[*call.Index].Arguments += call.Function.Arguments
		}
		if choice.FinishReason != "" {
			got.Finish = string(choice.FinishReason)
		}
	}
}
