//go:build ollama

package ollama_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"
)

// words are the members whose values belong to the format, whatever the model
// and the request.
var words = []string{
	"type", "object", "role", "status", "finish_reason", "done_reason", "stop_reason", "system_fingerprint",
	"service_tier", "tool_choice", "truncation", "message", "error",
}

// others are the members whose insides belong to the model or its tokenizer.
var others = []string{"arguments", "input", "context"}

// shape describes the body of a response, an event or a line each, without what
// another model would say. Equal ones in a row are described once, for how many
// tokens there are is the model's.
func shape(t *testing.T, contentType, body string) []string {
	t.Helper()
	var parts []string
	switch {
	case strings.HasPrefix(contentType, "text/event-stream"):
		for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
			head, data, found := strings.Cut(event, "data: ")
			if !found {
				t.Fatalf("no data in %q", event)
			}
			parts = append(parts, head+dataShape(t, data))
		}
	case strings.HasPrefix(contentType, "application/x-ndjson"):
		for line := range strings.SplitSeq(strings.TrimSuffix(body, "\n"), "\n") {
			parts = append(parts, dataShape(t, line))
		}
	default:
		parts = []string{sortedShape(t, body)}
	}
	return slices.Compact(parts)
}

// sortedShape describes a body that is read whole, in which the order of members
// means nothing.
func sortedShape(t *testing.T, body string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(body), &v); err != nil {
		t.Fatalf("%v: %q", err, body)
	}
	sorted, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return dataShape(t, string(sorted))
}

func dataShape(t *testing.T, data string) string {
	t.Helper()
	if data == "[DONE]" {
		return data
	}
	if !gjson.Valid(data) {
		t.Fatalf("no JSON: %q", data)
	}
	return valueShape("", gjson.Parse(data))
}

// valueShape describes a value: its kind and whether it is empty, and of an
// object the members in their order.
func valueShape(name string, v gjson.Result) string {
	switch {
	case v.IsArray() || v.IsObject():
		return insideShape(name, v)
	case v.Type == gjson.String && v.Str != "" && slices.Contains(words, name):
		return v.Raw
	case v.Type == gjson.String && v.Str != "":
		return "text"
	case v.Type == gjson.Number && v.Num != 0:
		return "number"
	default:
		return v.Raw // null, a boolean, zero or an empty string
	}
}

func insideShape(name string, v gjson.Result) string {
	var members []string
	v.ForEach(func(key, member gjson.Result) bool {
		if v.IsArray() {
			members = append(members, valueShape("", member))
		} else {
			members = append(members, fmt.Sprintf("%s:%s", key.Str, valueShape(key.Str, member)))
		}
		return true
	})
	brackets := "{}"
	if v.IsArray() {
		brackets = "[]"
	}
	inside := strings.Join(members, " ")
	if inside != "" && slices.Contains(others, name) {
		inside = "…"
	}
	return brackets[:1] + inside + brackets[1:]
}

// sameShape compares what the simulator has sent with what the server has.
func sameShape(t *testing.T, got, want []string) {
	t.Helper()
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			t.Errorf("part %d of the body is\n%s\nand at Ollama\n%s", i, g, w)
		}
	}
}
