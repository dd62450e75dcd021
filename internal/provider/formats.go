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
	// endless says that nothing but the end of the body ends a response: none of
	// its events is the last one, and no choice has to finish.
	endless bool
}

// formats has every format that can be decoded, in the order in which they are
// tried. Which request paths go with a format is in llmPaths.
var formats = []format{
	{name: "bedrock-invoke", framing: framingFrames, matches: isBedrockInvoke, new: newBedrockInvoke},
	{name: "bedrock-converse", framing: framingFrames, matches: isBedrockConverse, means: converseMeaning, new: newBedrockConverse},
	{name: "ollama-chat", framing: framingLines, matches: isOllamaChat, new: newOllamaChat},
	{name: "ollama-generate", framing: framingLines, matches: isOllamaGenerate, new: newOllamaGenerate},
	{name: "cohere-v1", framing: framingLines | framingSSE, matches: isCohereV1, new: newCohereV1},
	{name: "openai-responses", framing: framingSSE, matches: isOpenAIResponses, means: responsesMeaning, new: newOpenAIResponses},
	{name: "anthropic-messages", framing: framingSSE, matches: isAnthropic, means: anthropicMeaning, new: newAnthropic},
	{name: "cohere-v2", framing: framingSSE, matches: isCohere, means: cohereMeaning, new: newCohere},
	{name: "gemini", framing: framingSSE | framingMixed | framingArray, matches: isGemini, new: newGemini},
	{name: "gemini-interactions", framing: framingSSE, matches: isGeminiInteractions, means: interactionsMeaning, new: newGeminiInteractions},
	{name: "openai-chat", framing: framingSSE, matches: isOpenAIChat, new: newOpenAIChat},
	{name: "openai-completions", framing: framingSSE, matches: isOpenAICompletions, new: newOpenAICompletions},
	{name: "openai-assistants", framing: framingSSE, matches: isOpenAIAssistants, means: assistantsMeaning, new: newOpenAIAssistants},
	{name: "tgi", framing: framingSSE, matches: isTGI, new: newTGI},
	{name: "llamacpp-completion", framing: framingSSE, matches: isLlamaCpp, new: newLlamaCpp},
	{name: "watsonx", framing: framingSSE, matches: isWatsonx, new: newWatsonx},
	{name: "mistral-conversations", framing: framingSSE, matches: isMistralConversations, means: conversationsMeaning, new: newMistralConversations},
	{name: "gemini-code-assist", framing: framingSSE | framingMixed | framingArray, matches: isGeminiCodeAssist, new: newGeminiCodeAssist},
	{name: "dashscope", framing: framingSSE, matches: isDashScope, new: newDashScope},
	{name: "sglang", framing: framingSSE, matches: isSGLang, new: newSGLang},
	{name: "triton", framing: framingSSE, matches: isTriton, new: newTriton, endless: true},
	{name: "cloudflare-workers-ai", framing: framingSSE, matches: isCloudflare, new: newCloudflare},
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
	// api is the format that goes with the request path, empty where it names no
	// LLM API. It counts only where an event alone could be anybody's.
	api string
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
