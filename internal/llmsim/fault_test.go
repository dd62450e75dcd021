package llmsim_test

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// result is what a client sees of a response over HTTP/1.1.
type result struct {
	status int
	header http.Header
	body   string
	err    error // of the request, or of reading the body
	took   time.Duration
}

// fetch runs one request with paced tokens in a bubble. The backend must count
// it as finished.
func fetch(t *testing.T, d dialect, body string, options llmsim.Options) (r result) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		options.TTFT, options.Interval = 200*time.Millisecond, 40*time.Millisecond
		b := &llmsim.Backend{Options: options}
		client, start := serve(t, b), time.Now()
		resp, err := client.Do(request(t.Context(), t, d.path, body, d.header()...))
		if r.err = err; err == nil {
			var p []byte
			p, r.err = io.ReadAll(resp.Body)
			resp.Body.Close()
			r.status, r.header, r.body = resp.StatusCode, resp.Header, string(p)
		}
		r.took = time.Since(start)
		synctest.Wait()
		if got, want := b.Stats(), (llmsim.Stats{Started: 1, Finished: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
	})
	return r
}

// The faults that end a stream: after two tokens, at the time of the third.
func TestFaultThatEndsTheStream(t *testing.T) {
	for _, c := range []struct {
		fault                  llmsim.Fault
		aborted, failed, ended bool
	}{
		{llmsim.FaultDie, true, false, false},
		{llmsim.FaultEnd, false, false, false},
		{llmsim.FaultError, false, true, false},
		{llmsim.FaultErrorDone, false, true, true},
		{llmsim.FaultCrash, false, true, false},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			for _, d := range dialects {
				t.Run(d.name, func(t *testing.T) {
					options := llmsim.Options{Tokens: 5, Reasoning: 1, Fault: c.fault, FaultAt: 2}
					r := fetch(t, d, d.streaming, options)
					got := d.readStream(t, r.body)
					if got.text != llmsim.Text(1) || got.reasoning != d.reasoning(1) {
						t.Errorf("the text is %q after %q", got.text, got.reasoning)
					}
					if aborted := errors.Is(r.err, io.ErrUnexpectedEOF); aborted != c.aborted || (r.err != nil) != c.aborted {
						t.Errorf("reading ended with %v", r.err)
					}
					if failed := got.failure != ""; failed != (c.failed && d.failure != "") || got.ended != c.ended {
						t.Errorf("the end is %+v", got)
					}
					if want := ms(280)[0]; r.took != want {
						t.Errorf("it took %v, want %v", r.took, want)
					}
				})
			}
		})
	}
}

// At token 0 nothing precedes the fault, not even a role.
func TestFaultAtFirstToken(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultEnd}
			r := fetch(t, d, d.streaming, options)
			if r.status != http.StatusOK || r.body != "" || r.err != nil || r.took != ms(200)[0] {
				t.Errorf("%+v", r)
			}
			if d.failure != failed {
				return // its errors are no events
			}
			options.Fault = llmsim.FaultError
			r = fetch(t, d, d.streaming, options)
			if i := strings.Index(r.body, `"error"`); i < 0 || i > 30 {
				t.Errorf("the first event is no error: %s", r.body)
			}
		})
	}
}

func TestFaultInPlaceOfFinish(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultEnd, FaultAt: 5}
			r := fetch(t, d, d.streaming, options)
			if got := d.readStream(t, r.body); got.text != llmsim.Text(5) || got.finish != "" || got.ended {
				t.Errorf("%+v", got)
			}
			options.FaultAt = 6
			r = fetch(t, d, d.streaming, options)
			if got := d.readStream(t, r.body); got.text != llmsim.Text(5) || got.finish != d.stop || !got.ended {
				t.Errorf("after the end: %+v", got)
			}
		})
	}
}

func TestNoDone(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultNoDone}
			r := fetch(t, d, d.streaming, options)
			got := d.readStream(t, r.body)
			if got.text != llmsim.Text(5) || got.ended || r.err != nil {
				t.Errorf("%+v, %v", got, r.err)
			}
			// In Ollama's last line, and in the last event of responses, the finish
			// goes with the terminator.
			if together := d.native() || d.path == "/v1/responses"; (got.finish == d.stop) == together {
				t.Errorf("the finish is %q", got.finish)
			}
		})
	}
}

// One event is cut in its JSON; all others are whole.
func TestMalformed(t *testing.T) {
	for _, d := range dialects {
		t.Run(d.name, func(t *testing.T) {
			options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultMalformed, FaultAt: 2}
			r := fetch(t, d, d.streaming, options)
			var cut int
			var rest strings.Builder
			separator := "\n\n"
			if d.native() {
				separator = "\n"
			}
			for e := range strings.SplitSeq(strings.TrimSuffix(r.body, separator), separator) {
				_, data, _ := strings.Cut(e, "{")
				if !strings.HasSuffix(e, "[DONE]") && !json.Valid([]byte("{"+data)) {
					cut++
					continue
				}
				rest.WriteString(e + separator)
			}
			got := d.readStream(t, rest.String())
			lost := strings.TrimPrefix(llmsim.Text(3), llmsim.Text(2))
			if want := strings.Replace(llmsim.Text(5), lost, "", 1); cut != 1 || got.text != want || !got.ended {
				t.Errorf("%d events are cut, the rest is %+v, want %q", cut, got, want)
			}
		})
	}
}

func TestStatus(t *testing.T) {
	for status, want := range map[int]int{0: 503, 429: 429, 529: 529} {
		for _, d := range forms {
			t.Run(d.name, func(t *testing.T) {
				options := llmsim.Options{Tokens: 5, Fault: llmsim.FaultStatus, Status: status}
				r := fetch(t, d.dialect, d.body, options)
				var object struct {
					Error any `json:"error"`
				}
				decode(t, r.body, &object)
				if r.status != want || object.Error == nil || r.took != 0 {
					t.Errorf("status %d after %v: %s", r.status, r.took, r.body)
				}
				if r.header.Get("Retry-After") == "" || !strings.HasPrefix(r.header.Get("Content-Type"), "application/json") {
					t.Errorf("headers: %v", r.header)
				}
			})
		}
	}
}

func TestErrorTypes(t *testing.T) {
	for _, c := range []struct{ server, path, status, want string }{
		{"none", "/v1/chat/completions", "400", "invalid_request_error"},
		{"none", "/v1/chat/completions", "429", "rate_limit_error"},
		{"none", "/v1/chat/completions", "500", "server_error"},
		{"none", "/v1/messages", "400", "invalid_request_error"},
		{"none", "/v1/messages", "401", "authentication_error"},
		{"none", "/v1/messages", "429", "rate_limit_error"},
		{"none", "/v1/messages", "500", "api_error"},
		{"none", "/v1/messages", "529", "overloaded_error"},
		{"ollama", "/v1/chat/completions", "400", "invalid_request_error"},
		{"ollama", "/v1/completions", "429", "api_error"},
		{"ollama", "/v1/responses", "404", "api_error"},
		{"ollama", "/v1/messages", "404", "not_found_error"},
	} {
		b := &llmsim.Backend{Options: llmsim.Options{Fault: llmsim.FaultStatus}}
		var body struct {
			Error struct {
				Type string `json:"type"`
			} `json:"error"`
		}
		decode(t, post(b, c.path, "{}", llmsim.HeaderStatus, c.status, llmsim.HeaderServer, c.server).Body.String(), &body)
		if body.Error.Type != c.want {
			t.Errorf("%s at %s of %s is %s, want %s", c.status, c.path, c.server, body.Error.Type, c.want)
		}
	}
}

func TestFaultOfWholeAnswer(t *testing.T) {
	for _, c := range []struct {
		fault  llmsim.Fault
		status int // 0: the connection is aborted
		broken bool
	}{
		{llmsim.FaultDie, 0, false},
		{llmsim.FaultError, http.StatusInternalServerError, false},
		{llmsim.FaultErrorDone, http.StatusInternalServerError, false},
		{llmsim.FaultCrash, http.StatusInternalServerError, false},
		{llmsim.FaultEnd, http.StatusOK, true},
		{llmsim.FaultMalformed, http.StatusOK, true},
	} {
		t.Run(string(c.fault), func(t *testing.T) {
			for _, d := range dialects {
				t.Run(d.name, func(t *testing.T) {
					options := llmsim.Options{Tokens: 5, Fault: c.fault, FaultAt: 2}
					r := fetch(t, d, d.whole, options)
					if r.status != c.status || (r.err != nil) != (c.status == 0) || r.took != ms(280)[0] {
						t.Errorf("%+v", r)
					}
					if c.status != 0 && json.Valid([]byte(r.body)) == c.broken {
						t.Errorf("the body is %s", r.body)
					}
				})
			}
		})
	}
}
