package corpus

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Case is one request, what a backend answers to it and what the client must
// see. The README beside the cases explains the members.
type Case struct {
	Name            string             `json:"-"`
	Kind            string             `json:"kind"`
	Path            string             `json:"path"`
	RequestHeaders  map[string]*string `json:"request_headers"`
	RequestBody     Content            `json:"request_body"`
	ResponseStatus  int                `json:"response_status"`
	ResponseHeaders map[string]*string `json:"response_headers"`
	HeaderWaitMS    int                `json:"header_wait_ms"`
	Steps           []Step             `json:"steps"`
	Route           map[string]string  `json:"route"`
	Want            Answer             `json:"want"`
	// WantDialects has the right answer of other dialects. Load fills in what
	// is as in Want.
	WantDialects map[string]json.RawMessage `json:"want_dialects"`
	Follow       bool                       `json:"follow"`
	Why          string                     `json:"why"`

	want json.RawMessage
}

// Step is what a backend writes at once, and what it does then.
type Step struct {
	Data   Content `json:"data"`
	WaitMS int     `json:"wait_ms"`
	Hang   bool    `json:"hang"`
}

// Wait is how long the backend is silent after the step.
func (s Step) Wait() time.Duration { return time.Duration(s.WaitMS) * time.Millisecond }

// Content is a text that the cases may write shorter than it is.
type Content string

// UnmarshalJSON implements json.Unmarshaler.
func (c *Content) UnmarshalJSON(raw []byte) error {
	var b strings.Builder
	if err := appendContent(&b, raw); err != nil {
		return err
	}
	*c = Content(b.String())
	return nil
}

func appendContent(b *strings.Builder, raw json.RawMessage) error {
	var short struct {
		Repeat *struct {
			Text  string `json:"text"`
			Times int    `json:"times"`
		} `json:"repeat"`
		Base64 *string `json:"base64"`
	}
	var parts []json.RawMessage
	var text string
	switch {
	case json.Unmarshal(raw, &text) == nil:
		b.WriteString(text)
	case json.Unmarshal(raw, &parts) == nil:
		for _, part := range parts {
			if err := appendContent(b, part); err != nil {
				return err
			}
		}
	case json.Unmarshal(raw, &short) == nil && short.Repeat != nil:
		b.WriteString(strings.Repeat(short.Repeat.Text, short.Repeat.Times))
	case short.Base64 != nil:
		decoded, err := base64.StdEncoding.DecodeString(*short.Base64)
		if err != nil {
			return err
		}
		b.Write(decoded)
	default:
		return fmt.Errorf("no content: %.100s", raw)
	}
	return nil
}

// Body returns all that the backend writes.
func (c *Case) Body() []byte {
	var b []byte
	for _, step := range c.Steps {
		b = append(b, step.Data...)
	}
	return b
}

// Wanted returns the right answer in a dialect; "text" is the one of Want.
func (c *Case) Wanted(tb testing.TB, dialect string) Answer {
	tb.Helper()
	var want Answer
	for _, raw := range []json.RawMessage{c.want, c.WantDialects[dialect]} {
		if raw == nil {
			continue
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			tb.Fatalf("%s: %v", c.Name, err)
		}
	}
	if dialect == "openai" && !c.AsksForUsage() {
		want.Usage = nil
	}
	return want
}

// Choices returns how many choices the request asks for.
func (c *Case) Choices() int {
	var body struct {
		N int `json:"n"`
	}
	_ = json.Unmarshal([]byte(c.RequestBody), &body)
	return max(body.N, 1)
}

// AsksForUsage reports whether the request asks for token counts as OpenAI's
// clients have to.
func (c *Case) AsksForUsage() bool {
	var body struct {
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
	}
	_ = json.Unmarshal([]byte(c.RequestBody), &body)
	return body.StreamOptions.IncludeUsage
}

// Cases returns the cases that lie beside the recordings.
func Cases(tb testing.TB) []*Case {
	tb.Helper()
	files, err := filepath.Glob(filepath.Join(Dir(tb), "cases2", "*.json"))
	if err != nil || len(files) == 0 {
		tb.Skip("SKIP-SHARED: the cases (../shared/cases2) are not beside this checkout")
	}
	cases := make([]*Case, len(files))
	for i, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		c := &Case{Name: strings.TrimSuffix(filepath.Base(file), ".json")}
		var outer struct {
			Want json.RawMessage `json:"want"`
		}
		if err := json.Unmarshal(raw, c); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		if err := json.Unmarshal(raw, &outer); err != nil {
			tb.Fatalf("%s: %v", file, err)
		}
		c.want = outer.Want
		cases[i] = c
	}
	return cases
}
