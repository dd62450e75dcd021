package rig

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
)

// Frame is one server-sent event as a browser would dispatch it, and nothing
// is corrected on the way: what is not exactly a frame of ours is an error.
type Frame struct {
	ID    string
	Event string
	Data  string
	Retry string
}

// Index is the part of the id after the colon, or all of it where there is none.
func (f Frame) Index() int {
	_, n, found := strings.Cut(f.ID, ":")
	if !found {
		n = f.ID
	}
	i, err := strconv.Atoi(n)
	if err != nil {
		return -1
	}
	return i
}

// Terminal reports whether the frame ends the response.
func (f Frame) Terminal() bool { return f.Event == "done" || f.Event == "error" }

// FrameReader reads frames from a response body.
type FrameReader struct {
	r *bufio.Reader
	// Comments counts the comment lines so far.
	Comments int
}

// NewFrameReader returns a reader of the frames in body.
func NewFrameReader(body io.Reader) *FrameReader {
	return &FrameReader{r: bufio.NewReader(body)}
}

// Next returns the next frame. The error is io.EOF after the last one, and
// io.ErrUnexpectedEOF where the body was cut.
func (fr *FrameReader) Next() (Frame, error) {
	var f Frame
	var lines int
	for {
		line, err := fr.r.ReadString('\n')
		if err != nil {
			if errors.Is(err, io.EOF) && (line != "" || lines > 0) {
				err = fmt.Errorf("body ends inside a frame: %q after %+v", line, f)
			}
			return f, err
		}
		line = strings.TrimSuffix(line, "\n")
		switch field, value, _ := strings.Cut(line, ": "); {
		case line == "" && lines == 0:
			return f, errors.New("empty frame")
		case line == "":
			if f.Data == "" {
				return f, fmt.Errorf("frame without data: %+v", f)
			}
			return f, nil
		case field == "":
			if lines > 0 {
				return f, errors.New("comment inside a frame")
			}
			fr.Comments++
			continue
		case field == "id":
			f.ID = value
		case field == "event":
			f.Event = value
		case field == "retry":
			f.Retry = value
		case field == "data" && f.Data == "":
			f.Data = value
		default:
			return f, fmt.Errorf("unexpected line %q", line)
		}
		lines++
	}
}

// Answer is a whole response in the text dialect, put together.
type Answer struct {
	ResponseID string
	Frames     []Frame
	Text       string // of choice 0
	Reasoning  string
	Refusal    string
	ToolCalls  []ToolCall
	Done       *Done
	Error      *Error
	Comments   int
	Cut        error // how the body ended, where it did not end well
}

// ToolCall is a call put together from its fragments.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string
}

// Done is the data of a done frame.
type Done struct {
	FinishReason         string `json:"finish_reason"`
	ProviderFinishReason string `json:"provider_finish_reason"`
	Choices              []struct {
		Choice       int    `json:"choice"`
		FinishReason string `json:"finish_reason"`
	} `json:"choices"`
	Usage *struct {
		InputTokens  *int64 `json:"input_tokens"`
		OutputTokens *int64 `json:"output_tokens"`
	} `json:"usage"`
}

// Error is the object of an error frame or an error body.
type Error struct {
	Type       string          `json:"type"`
	Code       string          `json:"code"`
	Message    string          `json:"message"`
	ResponseID string          `json:"response_id"`
	Upstream   json.RawMessage `json:"upstream"`
}

// ReadAnswer reads a whole response in the text dialect and checks what holds
// for every one: ids without gaps, one terminal frame and nothing after it.
func ReadAnswer(tb testing.TB, body io.Reader) *Answer {
	tb.Helper()
	a := new(Answer)
	fr := NewFrameReader(body)
	for {
		f, err := fr.Next()
		if err != nil {
			a.Comments = fr.Comments
			if !errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
				a.Cut = err
			} else if len(a.Frames) == 0 || !a.Frames[len(a.Frames)-1].Terminal() {
				tb.Errorf("the body ends without a terminal frame after %d frames", len(a.Frames))
			}
			return a
		}
		if err := a.Add(f); err != nil {
			tb.Fatal(err)
		}
	}
}

// ReadMerged is ReadAnswer for a client that catches up: what it has missed may come
// in fewer frames.
func ReadMerged(tb testing.TB, body io.Reader) *Answer {
	tb.Helper()
	a := new(Answer)
	for fr := NewFrameReader(body); ; {
		f, err := fr.Next()
		if errors.Is(err, io.EOF) {
			return a
		}
		if err == nil {
			err = a.Merge(f)
		}
		if err != nil {
			tb.Fatal(err)
		}
	}
}

// Add adds one frame.
func (a *Answer) Add(f Frame) error {
	id, _, resumable := strings.Cut(f.ID, ":")
	if !resumable {
		id = ""
	}
	if n := len(a.Frames); n > 0 && a.Frames[n-1].Terminal() {
		return fmt.Errorf("frame %+v after the terminal one", f)
	}
	if want := len(a.Frames) + 1; f.Index() != want {
		return fmt.Errorf("frame %+v has not the index %d", f, want)
	}
	if a.ResponseID != "" && a.ResponseID != id {
		return fmt.Errorf("frame %+v is of another response than %s", f, a.ResponseID)
	}
	a.ResponseID = id
	a.Frames = append(a.Frames, f)
	return a.fold(f)
}

// Merge adds one frame, which may stand for several: its index is at least the
// next one.
func (a *Answer) Merge(f Frame) error {
	last := 0
	if n := len(a.Frames); n > 0 {
		last = a.Frames[n-1].Index()
	}
	if f.Index() <= last {
		return fmt.Errorf("frame %+v after the index %d", f, last)
	}
	a.Frames = append(a.Frames, f)
	return a.fold(f)
}

func (a *Answer) fold(f Frame) error {
	var data struct {
		Text      string
		Choice    int
		Index     int
		ID, Name  string
		Arguments string
		Error     *Error
	}
	if err := json.Unmarshal([]byte(f.Data), &data); err != nil {
		return fmt.Errorf("frame %+v: %w", f, err)
	}
	if data.Choice != 0 {
		return nil
	}
	switch f.Event {
	case "":
		a.Text += data.Text
	case "reasoning":
		a.Reasoning += data.Text
	case "refusal":
		a.Refusal += data.Text
	case "tool_call":
		if data.Index == len(a.ToolCalls) {
			a.ToolCalls = append(a.ToolCalls, ToolCall{ID: data.ID, Name: data.Name})
		}
		if data.Index >= len(a.ToolCalls) {
			return fmt.Errorf("frame %+v: tool index without its predecessors", f)
		}
		a.ToolCalls[data.Index].Arguments += data.Arguments
	case "done":
		a.Done = new(Done)
		return json.Unmarshal([]byte(f.Data), a.Done)
	case "error":
		a.Error = data.Error
	default:
		return fmt.Errorf("unknown frame %+v", f)
	}
	return nil
}
