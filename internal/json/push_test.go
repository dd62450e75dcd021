package json_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
)

// pieces cuts a text into pieces of random sizes, or of one byte.
func pieces(text string, seed uint64) []string {
	random := rand.New(rand.NewPCG(seed, 5))
	var list []string
	for text != "" {
		n := 1
		if seed > 0 {
			n = min(len(text), 1+random.IntN(20))
		}
		list = append(list, text[:n])
		text = text[n:]
	}
	return list
}

func TestReducerKeepsWhatIsShort(t *testing.T) {
	t.Parallel()
	long := strings.Repeat(`a\"b`, 2000)
	numbers := strings.Repeat("1,", 100)
	const gone = "\"\x00\""
	for text, want := range map[string]string{
		`{"a":"b"}`:                        `{"a":"b"}`,
		"{ \"a\" : [ 1 , -2.5e3, true ]}":  `{"a":[1,-2.5e3,true]}`,
		`{"a":"` + long + `","b":1}`:       `{"a":` + gone + `,"b":1}`,
		`{"` + long + `":"x"}`:             `{` + gone + `:"x"}`,
		`[` + numbers + `2]`:               `[` + strings.Repeat("1,", 64) + gone + `]`,
		`[` + numbers + `"x",{}]`:          `[` + strings.Repeat("1,", 64) + gone + `,"x",{}]`,
		`{"a":[` + numbers + `3],"b":[4]}`: `{"a":[` + strings.Repeat("1,", 64) + gone + `],"b":[4]}`,
		`"no object"`:                      "",
		`5`:                                "",
		`{"a":"` + strings.Repeat(`","a":"`, 3000) + `"}`: "", // too many short ones
	} {
		for seed := range uint64(4) {
			r := json.NewReducer(16 << 10)
			for _, piece := range pieces(text, seed) {
				r.Write([]byte(piece))
			}
			got := string(r.Bytes())
			if got != want {
				t.Fatalf("%.60s became %.200q, want %.200q", text, got, want)
			}
			if c := json.NewCursor([]byte(got)); got != "" {
				if c.Skip(); !c.End() {
					t.Errorf("%.100q cannot be read", got)
				}
			}
		}
	}
}

func TestWhatWasLeftOutIsKnown(t *testing.T) {
	t.Parallel()
	reduced := []byte("{\"text\":\"\x00\",\"args\":{\"a\":\"\x00\"},\"n\":1}")
	c := json.MakeCursor(reduced)
	for ok := c.Open('{'); ok; ok = c.More('{') {
		switch string(c.Key()) {
		case "text":
			if raw := c.Text(); !json.IsElided(raw) || json.Unquote(raw) != "" {
				t.Errorf("text is %q", raw)
			}
		case "args":
			if _, ok := json.AppendCompact(nil, c.Raw()); ok {
				t.Error("an object without a part of it is compacted")
			}
		default:
			c.Skip()
		}
	}
	if !c.End() {
		t.Error("not read to its end")
	}
}

func TestAppendCompact(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"{ \"a\" :\n [ 1 , \"\\u0041\u2028\" ] , \"b\":{} }": `{"a":[1,"A\u2028"],"b":{}}`,
		`[NaN,-Infinity,Infinity,1e5]`:                       `[null,null,null,1e5]`,
		"\"bad \xff\"":                                       "\"bad \uFFFD\"",
		`{"a":1`:                                             "",
		`{} {}`:                                              "",
	} {
		got, ok := json.AppendCompact([]byte("x"), []byte(raw))
		if ok != (want != "") || string(got) != "x"+want {
			t.Errorf("%s became %s, %v", raw, got, ok)
		}
	}
}

// Values with nothing in them stand for nothing, whatever their type; others of
// the wrong type do not pass.
func TestEmptyValuesOfTheWrongType(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]bool{
		"null": true, `""`: true, "{}": true, "[]": true, " { } ": true,
		"0": false, "false": false, `"x"`: false, `{"a":1}`: false,
	} {
		for name, read := range map[string]func(*json.Cursor){
			"EnterOutput": func(c *json.Cursor) { c.EnterOutput('[') },
			"Output":      func(c *json.Cursor) { c.Output('[') },
		} {
			c := json.NewCursor([]byte(value))
			if read(c); c.End() != want {
				t.Errorf("%s of %s: %v", name, value, !want)
			}
		}
	}
	for value, want := range map[string]bool{"null": true, "[]": true, "{}": true, `"x"`: true, "5": false, "[1]": false} {
		if c := json.NewCursor([]byte(value)); c.Text() != nil && value != `"x"` || c.End() != want {
			t.Errorf("Text of %s: %v", value, !want)
		}
	}
}

func TestCountsAreBounded(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]int64{
		"5": 5, "12": 12, "1e3": 1000, "9223372036854775807": 1<<53 - 1, "1e300": 1<<53 - 1,
		"99999999999999999999": 1<<53 - 1, "-1": -1, `"5"`: -1, "null": -1, "NaN": -1,
	} {
		if got := json.NewCursor([]byte(value)).Count(); got != want {
			t.Errorf("%s counts as %d, want %d", value, got, want)
		}
	}
}

func TestMembersAreFoundAtTheirDepth(t *testing.T) {
	t.Parallel()
	body := `{ "messages":[{"content":"\"stream\":true, {\\","n":9}], "nested":{"stream":false,"n":7,"deep":{"include_usage":true}},` +
		`"stream" : true,"n":2 , "model":"m-1","stream_options":{"include_usage":true},"prompt":["a","b"],"long":"` +
		strings.Repeat("x", 500) + `","esc\u0061ped":1,"last":false}`
	wanted := func(key string, depth int) bool {
		switch key {
		case "stream", "n", "model", "last", "long":
			return depth == 1
		}
		return key == "include_usage" && depth == 2
	}
	want := `[stream=true n=2 model="m-1" include_usage=true last=false]`
	for seed := range uint64(6) {
		var found []string
		m := json.Members{Wanted: wanted, Found: func(key string, _ int, value string, isString bool) {
			if isString {
				value = `"` + value + `"`
			}
			found = append(found, key+"="+value)
		}}
		for _, piece := range pieces(body, seed) {
			m.Write([]byte(piece))
		}
		if got := fmt.Sprint(found); got != want || !m.Done() {
			t.Errorf("%s, done %v", got, m.Done())
		}
	}
	for _, body := range []string{`["stream"]`, `5`, `"stream"`} {
		m := json.Members{Wanted: wanted, Found: func(key string, _ int, _ string, _ bool) { t.Errorf("%s: found %s", body, key) }}
		if m.Write([]byte(body + " ")); !m.Done() && body != `"stream"` {
			t.Errorf("%s: not done", body)
		}
	}
}

func TestProgressOfArguments(t *testing.T) {
	t.Parallel()
	for escaped, want := range map[string][3]bool{ // begun, free, whole
		``:                         {false, false, false},
		`  \n`:                     {false, false, false},
		`{`:                        {true, false, false},
		`{\"a\":\"}\"`:             {true, false, false},
		`{\"a\":\"}\"}`:            {true, false, true},
		`{\"a\":[1,{\"b\":\"\\\"}`: {true, false, false},
		`{}`:                       {true, false, true},
		`SELECT {}`:                {true, true, false},
		`[1]`:                      {true, true, false},
	} {
		for seed := range uint64(3) {
			var p json.Progress
			// Fragments are cut between characters, and so between escapes.
			if seed == 0 {
				p.Feed([]byte(escaped))
			} else {
				for i := 0; i < len(escaped); {
					n := 1
					if escaped[i] == '\\' {
						n = 2
					}
					p.Feed([]byte(escaped[i : i+n]))
					i += n
				}
			}
			if got := [3]bool{p.Begun(), p.Free(), p.Whole()}; got != want {
				t.Errorf("%s: %v, want %v", escaped, got, want)
			}
		}
	}
}

// FuzzReducer: whatever the text and its cuts, what is kept is bounded, does not
// depend on the cuts, and is the text where nothing in it is long.
func FuzzReducer(f *testing.F) {
	f.Add([]byte(`{"a":["b",1,2,{"c":null}],"d":"\u00e9"}`), uint64(1))
	f.Add([]byte(`{"a":"`+strings.Repeat("x", 300)+`"}`), uint64(2))
	f.Fuzz(func(t *testing.T, text []byte, seed uint64) {
		const limit = 200
		whole := json.NewReducer(limit)
		whole.Write(text)
		cut := json.NewReducer(limit)
		for _, piece := range pieces(string(text), seed) {
			cut.Write([]byte(piece))
		}
		if got, want := string(cut.Bytes()), string(whole.Bytes()); got != want || len(got) > limit {
			t.Fatalf("in pieces %q, whole %q", got, want)
		}
		if c := json.MakeCursor(text); len(text) < 64 && strings.HasPrefix(string(text), "{") {
			if c.Skip(); !c.End() {
				return
			}
			want, ok := json.AppendCompact(nil, text)
			got, again := json.AppendCompact(nil, whole.Bytes())
			if ok != again || string(got) != string(want) {
				t.Fatalf("%q was reduced to %q", text, whole.Bytes())
			}
		}
	})
}
