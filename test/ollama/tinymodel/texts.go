package tinymodel

import (
	"fmt"
	"strings"
)

// The last user message of a prompt chooses what the model says. Whatever is
// none of these words is answered with [Answer]; offered tools are called, after
// AskThought with Thought before the call.
const (
	AskThought = "think" // Thought, then Conclusion
	AskLoop    = "loop"  // Verse again and again, without an end
	AskStuck   = "stuck" // the same token again and again
)

// Opening is the beginning of [Answer]: what a proxy may get wrong. It has
// letters of two, three and four bytes, emoji of several code points, quotes,
// backslashes, what HTML and JavaScript escape, control characters, and lines
// that look like server-sent events.
const Opening = "Straße nach Łódź, 北京の天気, Αθήνα — “gut”, «bien», \"so\" \\n so\\: 👨‍👩‍👧 🇨🇭 ☔\n" +
	"<b>R&D</b> a\u2028b \x1b[1mc\x1b[0m\n" +
	"\n" +
	"data: [DONE]\n" +
	"data: {\"text\":\"not an event\"}\n" +
	"\n" +
	"event: done\r\n" +
	": nor a comment\n" +
	"id: 7\n" +
	"\tretry: 1\n"

// What the model says beside [Answer].
const (
	Thought    = "First the 雨, then the naïve part: \"2 × 21\".\n"
	Conclusion = "It is forty-two. 🎉"
	Verse      = "Round and round it goes, 永遠に, без конца… "
)

// The one call of a tool that the model makes.
const (
	ToolName      = "get_weather"
	ToolArguments = `{"city":"Zürich 🌧"}`
)

// Answer is what the model says unless it is asked for something else: some
// hundred tokens, of which none comes twice.
func Answer() string {
	var b strings.Builder
	b.WriteString(Opening)
	for n := range 70 {
		fmt.Fprintf(&b, "%d × %d = %d. ", n, n, n*n)
	}
	b.WriteString("Ende. ✅")
	return b.String()
}

// Template is the model's prompt template in the language of Ollama. From it
// Ollama also learns how the model marks its thoughts and its tool calls: by
// the text around .Thinking and the text before a call.
const Template = `
{{- $last := "" }}{{ $role := "" }}
{{- range .Messages }}{{ $last = .Content }}{{ $role = .Role -}}
<|{{ .Role }}|>{{ if .Thinking }}<think>{{ .Thinking }}</think>{{ end }}{{ .Content }}
{{- if .ToolCalls }}{{ range .ToolCalls }}<tool_call>
{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
</tool_call>{{ end }}{{ end }}<|end|>
{{- end }}
{{- if .Tools }}<|system|>{{ .Tools }}<|end|>{{ end }}
{{- if and .Tools (eq $role "user") (eq $last "` + AskThought + `") }}<|say-thought-call|>
{{- else if and .Tools (eq $role "user") }}<|say-call|>
{{- else if eq $last "` + AskThought + `" }}<|say-thought|>
{{- else if eq $last "` + AskLoop + `" }}<|say-loop|>
{{- else if eq $last "` + AskStuck + `" }}<|say-stuck|>
{{- else }}<|say-answer|>
{{- end }}`

// text is what the model says after a token of the prompt.
type text struct {
	name string // the token
	says string
	loop bool // it begins again instead of ending
}

func texts() []text {
	call := fmt.Sprintf("<tool_call>\n{\"name\": %q, \"arguments\": %s}\n</tool_call>", ToolName, ToolArguments)
	thought := "<think>\n" + Thought + "</think>\n\n"
	return []text{
		{name: "<|say-answer|>", says: Answer()},
		{name: "<|say-thought|>", says: thought + Conclusion},
		{name: "<|say-call|>", says: call},
		{name: "<|say-loop|>", says: Verse, loop: true},
		{name: "<|say-stuck|>", says: "~", loop: true},
		{name: "<|say-thought-call|>", says: thought + call},
	}
}
