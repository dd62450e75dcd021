package provider

import (
	"hash/fnv"
	"strconv"
)

// toolCalls has the tool calls of a choice that were passed on, to find the one
// that a fragment goes on with: the last ones, since fragments of earlier ones
// do not come any more. It is for formats in which every call begins with an
// event of its own; for OpenAI's chat see chatChoice.
type toolCalls struct {
	list   []toolCall
	opened int // how many of all
}

// toolCall is one tool call.
type toolCall struct {
	index     int64  // the provider's, -1 where there is none
	item      string // the provider's id of the item that it is, in OpenAI's Responses
	id        string // where the format has to know it
	canonical int    // the index under which it was passed on
	spoke     bool   // arguments have come
	whole     bool   // its arguments came with its start
}

// open remembers a tool call that begins. The pointer is valid until the next
// one does.
func (t *toolCalls) open(call toolCall) *toolCall {
	if len(t.list) == maxCalls {
		t.list = append(t.list[:0], t.list[maxCalls/2:]...)
	}
	call.canonical = t.opened
	t.opened++
	t.list = append(t.list, call)
	return &t.list[len(t.list)-1]
}

// find returns the last tool call that began with this index, nil where none
// did.
func (t *toolCalls) find(index int64) *toolCall {
	for i := len(t.list) - 1; i >= 0; i-- {
		if t.list[i].index == index {
			return &t.list[i]
		}
	}
	return nil
}

// callID returns what a tool call's id, the inside of a JSON string, stands for.
// One that is longer than maxWord is cut, and told from others that begin alike
// by a hash of the whole.
func callID(raw []byte) string {
	id := wordOf(raw)
	if len(id) <= maxWord {
		return id
	}
	hash := fnv.New64a()
	_, _ = hash.Write(raw) // it never fails
	suffix := "-" + strconv.FormatUint(hash.Sum64(), 16)
	return cut(id, maxWord-len(suffix)) + suffix
}

// isCallID reports whether the inside of a JSON string stands for an id that
// callID has returned.
func isCallID(raw []byte, id string) bool { return string(raw) == id || callID(raw) == id }

// isWord reports whether the inside of a JSON string stands for a word that word
// has returned.
func isWord(raw []byte, name string) bool { return string(raw) == name || word(raw) == name }
