package cli

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// maxLine is the longest line of a frame, in bytes: a merged frame has 32 KiB of
// text, which JSON may write six times as long.
const maxLine = 1 << 20

// frame is one server-sent event, as section 9.2.6 of the WHATWG HTML Living
// Standard dispatches it.
type frame struct {
	id, event, data string
	retry           time.Duration // 0 where there is no retry field
}

// frameReader reads frames. Lines end with LF or CRLF.
type frameReader struct{ lines *bufio.Scanner }

func newFrameReader(body io.Reader) *frameReader {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, maxLine)
	return &frameReader{lines}
}

// next returns the next frame that has data. The error is io.EOF where the body
// ends well, also within a frame, which the standard drops.
func (r *frameReader) next() (frame, error) {
	var f frame
	var data []string
	for r.lines.Scan() {
		line := r.lines.Text()
		if line == "" {
			if len(data) > 0 {
				f.data = strings.Join(data, "\n")
				return f, nil
			}
			f = frame{}
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "data":
			data = append(data, value)
		case "event":
			f.event = value
		case "id":
			f.id = value
		case "retry":
			if ms, err := strconv.Atoi(value); err == nil && ms >= 0 {
				f.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	if err := r.lines.Err(); err != nil {
		return f, fmt.Errorf("reading the stream: %w", err)
	}
	return f, io.EOF
}
