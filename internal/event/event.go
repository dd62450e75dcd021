package event

// Kind tells what an Event carries.
type Kind uint8

// The kinds. Text, Reasoning, Refusal and ToolCall are output of the model.
// Finish, Usage and End are facts that a Decoder reports and a Reader folds
// into the one terminal event, Done; Failed is the other terminal event.
const (
	Text      Kind = iota + 1 // a piece of the answer
	Reasoning                 // a piece of the model's thinking, or of its tool plan
	Refusal                   // a piece of the model's refusal
	ToolCall                  // a fragment of a tool call that the client must execute
	Finish                    // a choice has ended, with its reason; only from a Decoder to its Reader
	Usage                     // token counts; only from a Decoder to its Reader
	End                       // the provider's own end of the stream; only from a Decoder to its Reader
	Done                      // terminal: the response is complete
	Failed                    // terminal: the response ended with an error
)

// IsOutput reports whether an event of this kind carries output of the model.
func (k Kind) IsOutput() bool { return k >= Text && k <= ToolCall }

// IsTerminal reports whether an event of this kind ends the response.
func (k Kind) IsTerminal() bool { return k == Done || k == Failed }

// Event is one canonical event. What a field means depends on Kind; fields
// that are not named for a kind are zero.
//
// Text is JSON-escaped: it is the inside of a JSON string, valid UTF-8, so
// that every encoder can put it between quotes as it is. It is valid until
// the next call of what returned the event.
type Event struct {
	Kind   Kind
	Choice int // index of the choice (candidate, generation), from 0

	// Text is the delta of Text, Reasoning and Refusal, never empty. For
	// ToolCall it is a fragment of the arguments' JSON text, which may be
	// empty where the fragment opens the call.
	Text []byte

	Tool   Tool       // ToolCall
	Finish string     // Finish: the provider's own word
	Usage  TokenUsage // Usage
	Result *Result    // Done
	Err    *Error     // Failed

	Blocked bool // Finish: whatever the word, it stands for content_filter
}

// Tool says which call a ToolCall fragment belongs to.
type Tool struct {
	// Index numbers the calls of one choice from 0, in order of appearance,
	// whatever index the provider gave them.
	Index int
	// ID and Name are set in the fragment that opens the call, and nowhere
	// else. ID is empty where the provider has none.
	ID   string
	Name string
}

// TokenUsage holds the token counts of a response, as OpenTelemetry counts.
type TokenUsage struct {
	Input  int64 // all of the input, -1 where it was not given
	Output int64 // all of the output, -1 where it was not given

	// Parts of the two; 0 where there are none, or the provider does not say.
	CachedInput int64 // of Input: read from a cache
	CacheWrite  int64 // of Input: written to a cache
	Reasoning   int64 // of Output: what the model thought
}

// Result is how a complete response ended.
type Result struct {
	// Finish is the reason of choice 0, and ProviderFinish the provider's own
	// word for it, empty where it sent none.
	Finish         FinishReason
	ProviderFinish string
	// Choices has the finish of every choice where there was more than one,
	// by index; else it is nil.
	Choices []ChoiceFinish
	// Usage is nil where the provider sent none.
	Usage *TokenUsage
}

// ChoiceFinish is the finish of one of several choices.
type ChoiceFinish struct {
	Choice int
	Finish FinishReason
}
