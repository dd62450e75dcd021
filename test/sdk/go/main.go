// Command sdk asks with one of the Go SDKs: openai, anthropic or sashabaranov,
// as its argument says. It gets its runs as a JSON array on standard input and
// prints one line of JSON for each: what the SDK made of the response.
//
// It is a module of its own, so that a build of the handler does not get the
// SDKs.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"sync"

	"github.com/anthropics/anthropic-sdk-go"
	"github.com/openai/openai-go/v3"
	sashabaranov "github.com/sashabaranov/go-openai"
)

const question = "What is the weather in Zürich?"

const toolName = "get_weather"

// run is one request: what to ask for and where.
type run struct {
	Name      string `json:"name"`
	URL       string `json:"url"`
	Tools     bool   `json:"tools"`
	MaxTokens int64  `json:"maxTokens"`
	Choices   int64  `json:"choices"`
	Retries   int    `json:"retries"`
}

// outcome is what the SDK made of the response.
type outcome struct {
	Run       string     `json:"run"`
	Text      string     `json:"text"`
	Reasoning string     `json:"reasoning"`
	Refusal   string     `json:"refusal"`
	Tools     []toolCall `json:"tools"`
	Finish    string     `json:"finish"`
	Usage     *usage     `json:"usage"`
	Ended     bool       `json:"ended"`
	Error     *sdkError  `json:"error"`
}

type toolCall struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type usage struct {
	Input  int64 `json:"input"`
	Output int64 `json:"output"`
}

type sdkError struct {
	Class   string `json:"class"`
	Message string `json:"message"`
	Status  int    `json:"status"`
	Type    string `json:"type"`
	Code    string `json:"code"`
}

func main() {
	asks := map[string]func(context.Context, run, *outcome) error{
		"openai": askOpenAI, "anthropic": askAnthropic, "sashabaranov": askSashabaranov,
	}
	if len(os.Args) != 2 || asks[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: sdk openai|anthropic|sashabaranov")
		os.Exit(2)
	}
	var runs []run
	if err := json.NewDecoder(os.Stdin).Decode(&runs); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	outcomes := make([]outcome, len(runs))
	var wg sync.WaitGroup
	for i, r := range runs {
		wg.Go(func() {
			outcomes[i].Run = r.Name
			if err := asks[os.Args[1]](context.Background(), r, &outcomes[i]); err != nil {
				outcomes[i].Error = describe(err)
			}
		})
	}
	wg.Wait()
	enc := json.NewEncoder(os.Stdout)
	for i := range outcomes {
		if err := enc.Encode(&outcomes[i]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// describe says of an error what an application can act on.
func describe(err error) *sdkError {
	e := &sdkError{Class: reflect.TypeOf(err).String(), Message: err.Error()}
	var openaiErr *openai.Error
	var anthropicErr *anthropic.Error
	var sashabaranovErr *sashabaranov.APIError
	switch {
	case errors.As(err, &openaiErr):
		e.Class, e.Status, e.Message = "openai.Error", openaiErr.StatusCode, openaiErr.Message
		e.Type, e.Code = openaiErr.Type, openaiErr.Code
	case errors.As(err, &anthropicErr):
		e.Class, e.Status = "anthropic.Error", anthropicErr.StatusCode
	case errors.As(err, &sashabaranovErr):
		e.Class, e.Status, e.Type = "openai.APIError", sashabaranovErr.HTTPStatusCode, sashabaranovErr.Type
		e.Code, _ = sashabaranovErr.Code.(string)
	}
	return e
}
