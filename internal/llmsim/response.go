package llmsim

import (
	"strings"
	"time"
)

// api is one of the APIs that a Backend speaks.
type api struct {
	// streams tells what a request gets that does not say.
	streams bool
	// toolSteps is how many steps a tool call takes; 0: the API has no tools.
	toolSteps int
	// ollama tells that Ollama serves it: the headers come with the first token,
	// and the death of a model is told in Ollama's words.
	ollama bool
	// noCache tells that a stream has Cache-Control: no-cache.
	noCache bool
	// wholeType is the content type of answers in one piece and of HTTP errors.
	wholeType string
	// errorBody returns the body of an HTTP error.
	errorBody func(status int, message string) any
	// writer returns the API's way to write one response.
	writer func(res *response) writer
}

// writer writes one response in its API's format. The append methods are called
// in the order opening, output for every step, finish, terminator; a fault cuts
// that order short.
type writer interface {
	// contentType is that of the stream.
	contentType() string
	// appendOpening appends what precedes the first step.
	appendOpening(dst []byte) []byte
	// appendOutput appends step k.
	appendOutput(dst []byte, k int) []byte
	// appendFinish appends the reason of the end, and the usage.
	appendFinish(dst []byte) []byte
	// appendTerminator appends the end of the stream.
	appendTerminator(dst []byte) []byte
	// appendError appends an error event.
	appendError(dst []byte, message string) []byte
	// whole returns the answer that is not streamed.
	whole() any
}

// response is what one request is answered with. It is a row of steps: first
// the reasoning, then the answer, which is either text or a tool call.
type response struct {
	number       int64 // of this response at its Backend, from 1
	created      time.Time
	model        string
	stream       bool
	includeUsage bool
	choices      int
	tool         string // the tool to call; empty where the answer is text
	promptTokens int
	reasoning    int  // steps of reasoning
	answer       int  // steps of the answer
	truncated    bool // the client's limit ended the response

	// What OpenAI's responses repeat of the request.
	maxOutputTokens *int
	tools           []toolReference
}

// newResponse plans the response to a request of size bytes.
func newResponse(a api, opts Options, req *request, size int, number int64) *response {
	res := &response{
		number:       number,
		created:      time.Now(),
		model:        req.Model,
		stream:       a.streams,
		includeUsage: req.StreamOptions.IncludeUsage,
		choices:      1,
		promptTokens: max(1, size/4), // a rule of thumb for English
		reasoning:    opts.Reasoning,
		answer:       opts.Tokens,

		maxOutputTokens: req.MaxOutputTokens,
		tools:           req.Tools,
	}
	if req.Stream != nil {
		res.stream = *req.Stream
	}
	if req.N != nil {
		res.choices = *req.N
	}
	if a.toolSteps > 0 {
		if res.tool = req.tool(); res.tool != "" {
			res.answer = a.toolSteps
		}
	}
	if limit := req.limit(); res.steps() > limit {
		res.truncated = true
		res.reasoning = min(res.reasoning, limit)
		res.answer = limit - res.reasoning
	}
	return res
}

func (r *response) steps() int { return r.reasoning + r.answer }

// completionTokens counts the steps of all choices.
func (r *response) completionTokens() int { return r.choices * r.steps() }

// finish picks the word for how the response ended.
func (r *response) finish(stop, length, tool string) string {
	switch {
	case r.truncated:
		return length
	case r.tool != "":
		return tool
	default:
		return stop
	}
}

// kind tells what a step carries.
type kind uint8

const (
	kindReasoning kind = iota
	kindText
	kindTool
)

// step returns what step k carries, and its index among the steps of that kind.
func (r *response) step(k int) (what kind, index int) {
	switch {
	case k < r.reasoning:
		return kindReasoning, k
	case r.tool != "":
		return kindTool, k - r.reasoning
	default:
		return kindText, k - r.reasoning
	}
}

// appendToken appends the token of one step of reasoning or text.
func (r *response) appendToken(dst []byte, choice, k int, html bool) []byte {
	if what, i := r.step(k); what == kindText {
		return answerPassage.appendQuoted(dst, choice*choiceShift+i, html)
	}
	return reasoningPassage.appendQuoted(dst, k, html)
}

// text returns the text of a whole answer.
func (r *response) text() string {
	if r.tool != "" {
		return ""
	}
	return Text(r.answer)
}

// callsTool reports whether the answer is a tool call that no limit has
// prevented.
func (r *response) callsTool() bool { return r.tool != "" && r.answer > 0 }

// toolArguments returns what a whole answer has of the arguments; a limit may
// have cut them.
func (r *response) toolArguments() string {
	return strings.Join(toolFragments[:min(r.answer, len(toolFragments))], "")
}
