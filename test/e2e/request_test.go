package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// request is what a client asks of a Caddy.
type request struct {
	method, path, body string
	header             http.Header
}

func (q request) do(t *testing.T, c *rig.Caddy) *http.Response {
	t.Helper()
	resp, err := q.try(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (q request) try(ctx context.Context, c *rig.Caddy) (*http.Response, error) {
	if q.method == "" {
		q.method = http.MethodGet
	}
	req, err := http.NewRequestWithContext(ctx, q.method, "http://"+c.Addr+q.path, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	if q.header != nil {
		req.Header = q.header
	}
	return http.DefaultClient.Do(req)
}

func post(body string, header ...string) request {
	h := make(http.Header)
	for pair := range slices.Chunk(header, 2) {
		h.Set(pair[0], pair[1])
	}
	return request{http.MethodPost, chatPath, body, h}
}

func get(path string, header ...string) request {
	q := post("", header...)
	q.method, q.path = http.MethodGet, path
	return q
}

// errorCode returns the code of an error body.
func errorCode(t *testing.T, resp *http.Response) string {
	t.Helper()
	var body struct{ Error rig.Error }
	if err := json.NewDecoder(resp.Body).Decode(&body); err != nil {
		t.Fatalf("status %d: %v", resp.StatusCode, err)
	}
	return body.Error.Code
}

// frames reads n frames, or all that come.
func frames(t *testing.T, fr *rig.FrameReader, n int) []rig.Frame {
	t.Helper()
	var list []rig.Frame
	for len(list) != n {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) && n < 0 {
			return list
		}
		if err != nil {
			t.Fatalf("after %d frames: %v", len(list), err)
		}
		list = append(list, f)
	}
	return list
}
