package cli

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// A line is chosen by its id, keeps chosen while the others move, and is stopped
// on a key.
func TestTopStopsWhatIsChosen(t *testing.T) {
	lists := []string{
		`[{"id":"one","model":"m\u001b[2J","age_ms":1500},{"id":"two"},{"id":"three"}]`,
		`[{"id":"two"},{"id":"three"}]`,
	}
	var stopped []string
	top := &Top{Every: time.Hour, Ask: func(method, path string) (*http.Response, error) {
		body := ""
		if method == http.MethodPost {
			stopped = append(stopped, path)
		} else {
			body = lists[0]
		}
		return &http.Response{Body: io.NopCloser(strings.NewReader(body))}, nil
	}}
	s := screen{top: top}
	s.look()
	drawn := s.draw()
	if !strings.Contains(drawn, reverse+"one") || strings.Contains(drawn[len(clearScreen):], "\x1b[2J") || !strings.Contains(drawn, "1.5s") {
		t.Errorf("%q", drawn)
	}
	s.press('k') // there is none above
	s.press('j')
	lists = lists[1:]
	s.look()
	s.press('x')
	if len(stopped) != 1 || stopped[0] != "/llm_stream/streams/two/cancel" || !strings.Contains(s.draw(), "stopped two") {
		t.Errorf("stopped %v: %q", stopped, s.draw())
	}
	lists[0] = `[]`
	s.look()
	if s.press('x'); len(stopped) != 1 {
		t.Errorf("stopped %v", stopped)
	}
	keys := make(chan byte, 1)
	keys <- 'q'
	var out strings.Builder
	if err := top.watch(t.Context(), &out, keys); err != nil || !strings.Contains(out.String(), "0 running") {
		t.Errorf("%v: %q", err, out.String())
	}
}

// FuzzFrames: whatever comes, frames are read to the end, and none is without data.
func FuzzFrames(f *testing.F) {
	f.Add("id: 1\nevent: done\ndata: {}\n\nretry: 5\ndata: a\ndata: b\n\n: c\n\ndata")
	f.Fuzz(func(t *testing.T, text string) {
		r := newFrameReader(strings.NewReader(text))
		for n := 0; ; n++ {
			fr, err := r.next()
			if err != nil {
				return
			}
			if n > len(text) {
				t.Fatalf("more frames than bytes: %+v", fr)
			}
		}
	})
}
