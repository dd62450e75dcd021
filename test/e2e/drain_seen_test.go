package e2e_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// unhurried is a backend whose streams go on, a word every 20 ms, until they
// are released. What is asked for at /json has no header until then.
type unhurried struct{ release chan struct{} }

func newUnhurried() *unhurried { return &unhurried{make(chan struct{})} }

func (u *unhurried) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.URL.Path == "/json" {
		select {
		case <-u.release:
			_, _ = io.WriteString(w, `{"released":true}`)
		case <-r.Context().Done():
		}
		return
	}
	rig.EventStream(w)
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for {
		rig.Say(w, rig.Chunk("x"))
		select {
		case <-u.release:
			rig.Say(w, rig.Stop)
			return
		case <-r.Context().Done():
			return
		case <-ticker.C:
		}
	}
}

// seen is what a client has had of a response, from its beginning to its end.
type seen struct {
	resp   *http.Response
	frames []rig.Frame
	raw    string // where it is not read as frames
	err    error  // nil after a clean end
	at     time.Time
}

// last returns the last frame.
func (s *seen) last() rig.Frame {
	if len(s.frames) == 0 {
		return rig.Frame{}
	}
	return s.frames[len(s.frames)-1]
}

// errorCode is the code in the last frame.
func (s *seen) errorCode() string {
	var data struct{ Error rig.Error }
	_ = json.Unmarshal([]byte(s.last().Data), &data)
	return data.Error.Code
}

// observe sends a request and reads what comes until it ends. begun is closed
// when the first bytes of a body are there.
func observe(t *testing.T, client *http.Client, url string, q request, raw bool) (begun chan struct{}, end chan *seen) {
	t.Helper()
	begun, end = make(chan struct{}), make(chan *seen, 1)
	method := q.method
	if method == "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(t.Context(), method, url+q.path, strings.NewReader(q.body))
	if err != nil {
		t.Fatal(err)
	}
	if q.header != nil {
		req.Header = q.header
	}
	go func() {
		s := new(seen)
		defer func() { s.at = time.Now(); end <- s }()
		if s.resp, s.err = client.Do(req); s.err != nil {
			return
		}
		defer func() { _ = s.resp.Body.Close() }()
		body := bufio.NewReader(s.resp.Body)
		_, _ = body.Peek(1)
		close(begun)
		if raw {
			var b []byte
			b, s.err = io.ReadAll(body)
			s.raw = string(b)
			return
		}
		fr := rig.NewFrameReader(body)
		for {
			f, err := fr.Next()
			if err != nil {
				if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
					s.err = err
				}
				return
			}
			s.frames = append(s.frames, f)
		}
	}()
	return begun, end
}
