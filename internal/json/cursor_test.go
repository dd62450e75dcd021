package json_test

import (
	stdjson "encoding/json"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// maxDepth is how deep a Cursor goes.
const maxDepth = 512

// The cursor takes for JSON what the standard library does.
func FuzzCursor(f *testing.F) {
	for _, text := range []string{
		`{"a":[1,-0.5e+3,true,false,null,{}],"b":"\u00e9\"\\ é"}`, ` [ ] `, `{"a":1,}`, `[1,]`, `{"a" "b"}`,
		`"\x"`, `"\u12g4"`, "\"\x01\"", `01`, `-`, `1.`, `1e`, `+1`, `nul`, `{} {}`, ``, `"`, `"\`, `"\u12`, `{`, `[[`,
		`{"\u0061":1}`, "\"0123456789abcdef\"", "\"0123456\\n9abcdef\x00\"",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if strings.Count(string(data), "[")+strings.Count(string(data), "{") >= maxDepth {
			return // deeper than the cursor may go
		}
		if text := string(data); strings.Contains(text, "NaN") || strings.Contains(text, "Infinity") || strings.Contains(text, "\"\x00\"") {
			return // what a cursor reads beyond JSON
		}
		if got, want := json.IsValue(data), stdjson.Valid(data); got != want {
			t.Errorf("valid: %v, want %v", got, want)
		}
	})
}

func TestCursorRefusesWhatNestsTooDeep(t *testing.T) {
	t.Parallel()
	for depth, want := range map[int]bool{maxDepth: true, maxDepth + 1: false} {
		text := strings.Repeat("[", depth) + strings.Repeat("]", depth)
		if got := json.IsValue([]byte(text)); got != want {
			t.Errorf("depth %d: valid is %v", depth, got)
		}
	}
}

func TestCursorCountsOnlyOpenBrackets(t *testing.T) {
	t.Parallel()
	for _, member := range []string{"{}", "[]", "[0]", `{"a":0}`} {
		if text := "[" + strings.Repeat(member+",", 2*maxDepth) + "0]"; !json.IsValue([]byte(text)) {
			t.Errorf("many %s are refused", member)
		}
	}
}

func TestCursorFindsFieldsByTheirRealNames(t *testing.T) {
	t.Parallel()
	c := json.MakeCursor([]byte(`{ "\u0063ontent" : "x" , "n" : 12 , "f" : 3e1 , "neg" : -1 , "s" : "5" }`))
	got := map[string]any{}
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch key := string(c.Key()); key {
		case "content":
			got[key] = string(c.Str())
		default:
			got[key] = c.Count()
		}
	}
	if !c.End() {
		t.Error("not taken for valid")
	}
	want := map[string]any{"content": "x", "n": int64(12), "f": int64(30), "neg": int64(-1), "s": int64(-1)}
	for key, value := range want {
		if got[key] != value {
			t.Errorf("%s is %v, want %v", key, got[key], value)
		}
	}
}

func TestUnquoteYieldsValidText(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		`plain`:              "plain",
		`a\"b\\c\n`:          "a\"b\\c\n",
		`\u00e9\ud83d\ude00`: "é😀",
		"bad\xff":            "bad\uFFFD",
		`lone\ud83d`:         "lone\uFFFD",
	} {
		if got := json.Unquote([]byte(raw)); got != want {
			t.Errorf("%q stands for %q, want %q", raw, got, want)
		}
	}
}
