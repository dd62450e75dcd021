package provider

import "github.com/tidwall/gjson"

// format is one wire format.
type format struct {
	name    string
	framing framing
	// matches reports whether an event that is not an error is of this format
	// and of no other.
	matches func(probe) bool
	// means tells what an event is by its name alone; nil where the events of
	// this format have no names.
	means func(name string) meaning
	new   func() Decoder
}

// formats has every format that can be decoded, in the order in which they are
// tried. Which request paths go with a format is in llmPaths.
var formats = []format{
	{"bedrock-invoke", framingFrames, isBedrockInvoke, nil, newBedrockInvoke},
	{"bedrock-converse", framingFrames, isBedrockConverse, converseMeaning, newBedrockConverse},
	{"ollama-chat", framingLines, isOllamaChat, nil, newOllamaChat},
	{"ollama-generate", framingLines, isOllamaGenerate, nil, newOllamaGenerate},
	{"cohere-v1", framingLines | framingSSE, isCohereV1, nil, newCohereV1},
	{"openai-responses", framingSSE, isOpenAIResponses, responsesMeaning, newOpenAIResponses},
	{"anthropic-messages", framingSSE, isAnthropic, anthropicMeaning, newAnthropic},
	{"cohere-v2", framingSSE, isCohere, cohereMeaning, newCohere},
	{"gemini", framingSSE | framingMixed | framingArray, isGemini, nil, newGemini},
	{"gemini-interactions", framingSSE, isGeminiInteractions, interactionsMeaning, newGeminiInteractions},
	{"openai-chat", framingSSE, isOpenAIChat, nil, newOpenAIChat},
	{"openai-completions", framingSSE, isOpenAICompletions, nil, newOpenAICompletions},
	{"openai-assistants", framingSSE, isOpenAIAssistants, assistantsMeaning, newOpenAIAssistants},
	{"tgi", framingSSE, isTGI, nil, newTGI},
	{"llamacpp-completion", framingSSE, isLlamaCpp, nil, newLlamaCpp},
	{"watsonx", framingSSE, isWatsonx, nil, newWatsonx},
}

// formatNamed returns the format with this name, nil where it cannot be
// decoded.
func formatNamed(name string) *format {
	for i := range formats {
		if formats[i].name == name {
			return &formats[i]
		}
	}
	return nil
}

// probe is an event as detection sees it.
type probe struct {
	name string
	// object is the event's JSON object; it does not exist where the data is
	// anything else.
	object gjson.Result
}

// typ returns the type that the event has: by its own word, or by its name
// where the data cannot be read.
func (p probe) typ() string {
	if t := p.object.Get("type"); t.Type == gjson.String {
		return t.Str
	}
	return p.name
}

// recognize returns the format of an event, nil where it tells none.
func recognize(p probe, framing framing) *format {
	for i := range formats {
		if f := &formats[i]; f.framing&framing != 0 && f.matches(p) {
			return f
		}
	}
	return nil
}
