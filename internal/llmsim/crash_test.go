package llmsim_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// The words of Ollama when the model dies.
const (
	runnerStopped = "model runner has unexpectedly stopped"
	unexpectedEOF = "an error was encountered while running the model: unexpected EOF"
)

// said returns what the error of a crash says in a dialect.
func (d dialect) said(ollama string) string {
	if d.headersWait() {
		return ollama
	}
	return failed
}

// Before the first token it is an HTTP error, whatever was to come.
func TestCrashBeforeTheFirstToken(t *testing.T) {
	for _, tokens := range []int{0, 5} {
		for _, d := range forms {
			t.Run(d.name, func(t *testing.T) {
				options := llmsim.Options{Tokens: tokens, Fault: llmsim.FaultCrash}
				r := fetch(t, d.dialect, d.body, options)
				var object struct {
					Error any `json:"error"`
				}
				decode(t, r.body, &object)
				if r.status != http.StatusInternalServerError || object.Error == nil || !strings.Contains(r.body, d.said(runnerStopped)) {
					t.Errorf("status %d: %s", r.status, r.body)
				}
				if !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
					t.Errorf("headers: %v", r.header)
				}
				if want := ms(200)[0]; tokens > 0 && r.took != want {
					t.Errorf("it took %v, want %v", r.took, want)
				}
			})
		}
	}
}

// Later the stream ends in good order, with what its API has for an error: an
// event, a chunk without a model, or nothing.
func TestCrashInTheStream(t *testing.T) {
	for _, at := range []int{2, 5} {
		for _, d := range dialects {
			t.Run(d.name, func(t *testing.T) {
				options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultCrash, FaultAt: at}
				r := fetch(t, d, d.streaming, options)
				want := d.failure
				if d.native() {
					want = unexpectedEOF
				}
				got := d.readStream(t, r.body)
				if r.status != http.StatusOK || r.err != nil || got.failure != want || got.text != llmsim.Text(at) {
					t.Errorf("status %d, %v, %+v", r.status, r.err, got)
				}
				if got.ended || got.finish != "" {
					t.Errorf("the end is %+v", got)
				}
			})
		}
	}
}

// Of a whole answer nothing has been sent when the model dies.
func TestCrashInAWholeAnswer(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultCrash, FaultAt: 2}
			r := fetch(t, d, d.whole, options)
			if r.status != http.StatusInternalServerError || !strings.Contains(r.body, d.said(unexpectedEOF)) {
				t.Errorf("status %d: %s", r.status, r.body)
			}
		})
	}
}
