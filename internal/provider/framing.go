package provider

import (
	"bytes"

	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// framing is how the events of a response are put one after another. The
// values are bits, since a format may come in more than one framing.
type framing uint8

const (
	framingUnknown framing = 0
	framingSSE     framing = 1 << iota
	framingLines
	framingMixed // server-sent events, and JSON objects among them
	framingArray
	framingFrames
	framingOther // none that we can split
)

// splitter returns a new splitter for the framing.
func (f framing) splitter(maxEvent int) sse.Splitter {
	switch f {
	case framingLines:
		return sse.NewLines(maxEvent)
	case framingMixed:
		return sse.NewMixedParser(maxEvent)
	case framingArray:
		return sse.NewArray(maxEvent)
	case framingFrames:
		return sse.NewFrames(maxEvent)
	case framingSSE, framingOther, framingUnknown:
	}
	return sse.NewParser(maxEvent)
}

// byteOrderMark may open a body, and is no part of it.
var byteOrderMark = []byte("\uFEFF")

// sseFields begin the lines of server-sent events. The last one is
// llama.cpp's.
var sseFields = []string{":", "data:", "event:", "id:", "retry:", "error:"}

// framingOf tells the framing of a response by its first bytes, which outrank
// its content type; unknown where it takes more of them. first says that
// nothing was skipped before them, llm that the request path names an LLM API.
func framingOf(start []byte, first bool, contentType string, llm bool) framing {
	if len(start) > 0 && start[0] <= 1 { // no text, but maybe a frame of less than 32 MiB
		switch {
		case !first:
			return framingOther
		case len(start) < sse.FramePrelude:
			return framingUnknown
		case sse.IsFrame(start):
			return framingFrames
		}
		return framingOther
	}
	if bytes.HasPrefix(byteOrderMark, start) { // also where it is empty
		return framingUnknown
	}
	switch start[0] {
	case '{':
		return framingLines
	case '[':
		return framingArray
	}
	switch mediaType(contentType) {
	case "text/event-stream":
		return framingSSE
	case "application/vnd.amazon.eventstream":
		if !llm {
			return framingOther // it is none, see above
		}
	}
	found := framingOther
	for _, field := range sseFields {
		switch {
		case bytes.HasPrefix(start, []byte(field)):
			return framingSSE
		case bytes.HasPrefix([]byte(field), start):
			found = framingUnknown
		}
	}
	return found
}
