package provider

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
	id        string // as it was sent, where the format has to know it
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
