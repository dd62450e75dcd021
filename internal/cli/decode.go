package cli

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/internal/provider"
)

// read reads a response to its end and returns why it is not whole. The text
// dialect has ids, which no other stream has; what else comes is read as a
// backend's.
func (m *meter) read(resp *http.Response, path string) (failure string) {
	body := &counter{r: resp.Body, n: &m.bytes}
	if resp.Header.Get("X-Response-Id") != "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		start := make([]byte, len("id: "))
		n, err := io.ReadFull(body, start)
		rest := io.MultiReader(strings.NewReader(string(start[:n])), body)
		if err == nil && (string(start) == "id: " || start[0] == ':') {
			return m.readText(rest)
		}
		return m.readAny(rest, resp, path)
	}
	return m.readAny(body, resp, path)
}

// readText reads frames of the text dialect.
func (m *meter) readText(body io.Reader) (failure string) {
	frames := newFrameReader(body)
	for {
		f, err := frames.next()
		switch {
		case errors.Is(err, io.EOF):
			return "the stream was cut"
		case err != nil:
			return failureOf(err)
		}
		switch f.event {
		case "done":
			_, _ = io.Copy(io.Discard, body) // so that the connection is used again
			return ""
		case "error":
			return codeOf(f.data)
		case "reconnect":
			return "sent away: reconnect"
		default:
			m.output(1)
		}
	}
}

// readAny reads a stream in any format that the handler reads.
func (m *meter) readAny(body io.Reader, resp *http.Response, path string) (failure string) {
	reader := provider.NewReader(provider.Options{Path: path, ContentType: resp.Header.Get("Content-Type")})
	defer reader.Release()
	buf := make([]byte, 32<<10)
	failure = "the stream was cut"
	for {
		n, err := body.Read(buf)
		events := reader.Feed(buf[:n])
		if err != nil {
			events = append(events, reader.Close(errors.Is(err, io.EOF))...)
		}
		outputs := reader.Silent()
		for i := range events {
			switch {
			case events[i].Kind.IsOutput():
				outputs++
			case events[i].Kind.IsTerminal():
				failure = ending(&events[i])
			}
		}
		m.output(outputs)
		switch {
		case err == nil:
		case reader.State() == provider.Opaque:
			return "no token stream that is known"
		case !errors.Is(err, io.EOF):
			return failureOf(err)
		default:
			return failure
		}
	}
}

// codeOf returns the code of an error frame.
func codeOf(data string) string {
	var d frameData
	if err := json.Unmarshal([]byte(data), &d); err != nil || d.Error.Code == "" {
		return "error"
	}
	return d.Error.Code
}

// counter counts the bytes that are read.
type counter struct {
	r io.Reader
	n *int64
}

func (c *counter) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	*c.n += int64(n)
	return n, err
}
