package main

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/shared"
)

// errRefusedChunk is the accumulator's opinion of a chunk that does not belong
// to the completion.
var errRefusedChunk = errors.New("the accumulator refused a chunk")

func askOpenAI(ctx context.Context, r run, got *outcome) error {
	client := openai.NewClient(option.WithAPIKey("none"), option.WithBaseURL(r.URL+"/v1/"), option.WithMaxRetries(r.Retries))
	params := openai.ChatCompletionNewParams{
		Model:         "sim-1",
		Messages:      []openai.ChatCompletionMessageParamUnion{openai.UserMessage(question)},
		StreamOptions: openai.ChatCompletionStreamOptionsParam{IncludeUsage: openai.Bool(true)},
	}
	if r.MaxTokens > 0 {
		params.MaxTokens = openai.Int(r.MaxTokens)
	}
	if r.Choices > 0 {
		params.N = openai.Int(r.Choices)
	}
	if r.Tools {
		params.Tools = []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(
			shared.FunctionDefinitionParam{Name: toolName},
		)}
	}
	stream := client.Chat.Completions.NewStreaming(ctx, params)
	defer func() { _ = stream.Close() }()
	var acc openai.ChatCompletionAccumulator
	for stream.Next() {
		chunk := stream.Current()
		if !acc.AddChunk(chunk) {
			return errRefusedChunk
		}
		if chunk.JSON.Usage.Valid() {
			got.Usage = &usage{chunk.Usage.PromptTokens, chunk.Usage.CompletionTokens}
		}
		for _, choice := range chunk.Choices {
			if field, ok := choice.Delta.JSON.ExtraFields["reasoning_content"]; ok && choice.Index == 0 {
				var text string
				_ = json.Unmarshal([]byte(field.Raw()), &text) // null is no reasoning
				got.Reasoning += text
			}
		}
	}
	readCompletion(&acc.ChatCompletion, got)
	if err := stream.Err(); err != nil {
		return err
	}
	got.Ended = got.Finish != ""
	return nil
}

// readCompletion reads what the accumulator has put together.
func readCompletion(c *openai.ChatCompletion, got *outcome) {
	if len(c.Choices) == 0 {
		return
	}
	message := c.Choices[0].Message
	got.Text, got.Refusal, got.Finish = message.Content, message.Refusal, c.Choices[0].FinishReason
	for _, call := range message.ToolCalls {
		got.Tools = append(got.Tools, toolCall{call.ID, call.Function.Name, call.Function.Arguments})
	}
}
