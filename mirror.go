package llmstream

import (
	"bytes"
	"net/http"
	"strings"
)

// mirror is where a stream goes that passes through as it is, when heartbeats
// may stand between its frames. It writes under the client's lock and knows
// whether what was written ends between two frames.
type mirror struct {
	http.ResponseWriter
	client *client
	sse    bool
	tail   []byte // the last bytes written, at most four
}

// newMirror returns where a client's passed-through stream goes. The caller
// holds the client's mu.
func newMirror(c *client, contentType string) *mirror {
	return &mirror{ResponseWriter: c.w, client: c, sse: strings.HasPrefix(contentType, eventStream)}
}

// Write implements http.ResponseWriter.
func (m *mirror) Write(p []byte) (int, error) {
	m.client.mu.Lock()
	defer m.client.mu.Unlock()
	m.client.armWrite()
	n, err := m.ResponseWriter.Write(p)
	m.client.fail(err)
	m.client.disarmWrite()
	m.client.count(n)
	m.tail = append(m.tail, p[max(0, n-4):n]...)
	m.tail = m.tail[max(0, len(m.tail)-4):]
	return n, err
}

// FlushError is what an http.ResponseController calls.
func (m *mirror) FlushError() error {
	m.client.mu.Lock()
	defer m.client.mu.Unlock()
	m.client.armWrite()
	err := m.client.rc.Flush()
	m.client.fail(err)
	m.client.disarmWrite()
	return err
}

// betweenFrames reports whether a comment may stand here: at the beginning, or
// after a blank line. The caller holds the client's mu.
func (m *mirror) betweenFrames() bool {
	return m.sse && (len(m.tail) == 0 || bytes.HasSuffix(m.tail, []byte("\n\n")) ||
		bytes.HasSuffix(m.tail, []byte("\r\n\r\n")) || bytes.HasSuffix(m.tail, []byte("\r\r")))
}
