package provider

import (
	"bytes"
	"errors"
	"net/http"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/json"
	"github.com/caddy-llmstream/caddy-llmstream/internal/sse"
)

// defaultMaxEvent is the limit of one event, in bytes, unless another is set.
const defaultMaxEvent = 16 << 20

// holdSlack is what a response that is not recognized may have, in bytes,
// beside one event of the largest size: names of fields and of events.
const holdSlack = 1 << 10

// State is what a Reader knows of a response.
type State uint8

// The states. Recognized and Opaque are final.
const (
	// Undetermined: the bytes so far do not tell. They are held back.
	Undetermined State = iota
	// Recognized: what Feed returns stands for the response, even where that
	// is only the error that ended it before its format was clear.
	Recognized
	// Opaque: no token stream that we know. It is to be passed on untouched,
	// beginning with what Held returns.
	Opaque
)

// Options says what a Reader may know of a response beforehand.
type Options struct {
	Path        string // of the request; empty where it is not known
	ContentType string // of the response
	MaxEvent    int    // longest single event with something we emit, in bytes; 0 means 16 MiB
	// Choices is how many choices the request asked for (n, candidateCount,
	// the number of prompts). Where it is 1, an only choice is choice 0,
	// whatever index the backend gives it. 0 means that it is not known, and
	// then the backend's indexes count.
	Choices int
}

// Reader reads the body of one response, whatever its format. It is not safe
// for concurrent use.
//
// Not every output of a model is an event: the code and the arguments of a tool
// that the provider runs, its progress, images and signatures are none. But
// they show that the model is at work. After every Feed, Silent says how many
// of them there were, so that a time limit counts them too: the model
// has put something out where Feed returned an output or Silent is not 0.
type Reader struct {
	opts Options
	llm  bool // the request path names an LLM API

	state  State
	ended  bool // the terminal event was returned
	broken bool // the body was aborted, or ended within an event
	format string

	// While Undetermined.
	hold    *hold
	leading int          // events that tell nothing
	guess   *format      // what to take the response for if nothing else comes
	failure *event.Error // an error came first, and nothing says yet whose

	framing framing
	split   sse.Splitter
	means   func(name string) meaning // nil where names mean nothing
	endless bool                      // nothing but the end of the body is the end
	decoder Decoder
	out     Events
	outcome outcome
	skipped int
	held    []byte
}

// NewReader returns a Reader at the start of a response body.
func NewReader(o Options) *Reader {
	if o.MaxEvent <= 0 {
		o.MaxEvent = defaultMaxEvent
	}
	return &Reader{
		opts:    o,
		llm:     NamesLLM(o.Path),
		hold:    new(hold),
		out:     Events{only: o.Choices == 1},
		outcome: outcome{usage: noUsage},
	}
}

// Feed takes the next bytes of the body and returns the events that they
// complete. The events and their texts are valid until the next call of Feed,
// Close, Finish or Release; p is not kept. After a terminal event there are no
// more.
func (r *Reader) Feed(p []byte) []event.Event {
	r.out.Reset()
	r.held = nil
	switch {
	case r.ended || r.state == Opaque:
		return nil
	case r.state == Recognized:
		r.read(p)
	default:
		r.detect(p)
	}
	return r.out.List()
}

// Close tells that the body has ended, and returns the events that this
// completes. Unless the response is Opaque, the terminal event is among them if
// it was not returned before. clean is whether the body ended as HTTP has it:
// one that was aborted is never the good end of a response, nor is one that
// ended within an event.
func (r *Reader) Close(clean bool) []event.Event {
	r.out.Reset()
	r.held = nil
	r.broken = !clean
	if r.state == Undetermined && !r.ended {
		r.detectAtEnd()
	}
	if r.state == Recognized && !r.ended {
		r.split.Close()
		r.drain(true)
		r.broken = r.broken || !r.ended && r.split.Cut()
	}
	if r.state == Recognized && !r.ended {
		r.endOfBody()
	}
	return r.out.List()
}

// Finish ends a response that has Finished without its terminal event, as the
// limit between two tokens does, and returns that event.
func (r *Reader) Finish() []event.Event {
	r.out.Reset()
	r.held = nil
	if r.state == Recognized && !r.ended {
		r.done()
	}
	return r.out.List()
}

// Release gives the memory of the last events back, for other Readers to use.
// A Reader that waits for bytes does well to have none.
func (r *Reader) Release() { r.out.Release() }

// Finished reports whether every choice has finished while the provider's end
// of the stream is still to come.
func (r *Reader) Finished() bool {
	return r.state == Recognized && !r.ended && r.outcome.finished()
}

// State returns what is known of the response.
func (r *Reader) State() State { return r.state }

// Held returns all bytes that were fed until the response turned out Opaque,
// those of the call that did it included; after any further call, nil. Of
// comments it has at most the last MaxEvent bytes.
func (r *Reader) Held() []byte { return r.held }

// Format returns the name of the wire format, empty until it is recognized.
func (r *Reader) Format() string { return r.format }

// Model returns the model that the provider says it runs, empty where it has
// not said.
func (r *Reader) Model() string { return r.out.model }

// ResponseID returns the provider's own id of the response, empty where it has
// not given one.
func (r *Reader) ResponseID() string { return r.out.id }

// Usage returns the token counts so far, nil where the provider has sent none.
// Those of a response that was completed are in its Result; this has those of
// one that failed, too.
func (r *Reader) Usage() *event.TokenUsage { return r.outcome.counts() }

// Silent returns how many outputs of the model the last call has seen that are
// no events; see Reader.
func (r *Reader) Silent() int { return r.out.silent }

// Skipped returns how many events could not be decoded and were skipped,
// because by their names they carry no output.
func (r *Reader) Skipped() int { return r.skipped }

// read takes bytes of a response whose format is known.
func (r *Reader) read(p []byte) {
	r.split.Feed(p)
	r.drain(false)
}

// drain decodes the events that are complete. At the end of the body the last
// one may be cut off.
func (r *Reader) drain(atEnd bool) {
	for {
		ev, ok := r.split.Next()
		if !ok {
			break
		}
		if r.decode(&ev, atEnd); r.ended {
			return
		}
	}
	if err := r.split.Err(); err != nil {
		r.fail(splitError(err))
		return
	}
	if array, ok := r.split.(*sse.Array); ok && array.Ended() {
		r.endOfBody() // nothing can come after its bracket
	}
}

// decode translates one event.
func (r *Reader) decode(ev *sse.Event, atEnd bool) {
	start := len(r.out.list)
	switch common(ev) {
	case commonPing:
		return
	case commonEmpty:
		r.byName(*ev, nil)
		return
	case commonDone:
		r.doneByWord()
		return
	case commonError:
		r.out.Fail(*ev)
	case commonNothing:
		if ev.Bare && r.framing != framingMixed {
			r.complain(*ev, start)
			break
		}
		silent := r.out.silent
		r.out.hasError = false
		err := r.decoder.Decode(*ev, &r.out)
		switch {
		case err != nil || r.out.tooLarge:
			r.out.list = r.out.list[:start]
			if r.complain(*ev, start); len(r.out.list) == start {
				r.undecodable(*ev, atEnd)
				return
			}
		case r.out.hasError, r.out.silent == silent && tellsNothing(r.out.list[start:]):
			r.complain(*ev, start)
		}
	}
	r.fold(start)
}

// tellsNothing reports whether none of the events is more than that a choice has
// begun, or a count.
func tellsNothing(events []event.Event) bool {
	for i := range events {
		if ev := &events[i]; ev.Kind != event.Usage && (ev.Kind != event.Finish || ev.Finish != "") {
			return false
		}
	}
	return true
}

// complain adds the error that an event reports, if it does, to what the decoder
// has made of it. It is the one rule for all formats: a decoder itself reports
// only what fails in a way of its own.
func (r *Reader) complain(ev sse.Event, start int) {
	decoded := r.out.list[start:]
	for i := range decoded {
		if decoded[i].Kind == event.Failed {
			return
		}
	}
	if tellsNothing(decoded) && isComplaint(ev) || isBlatant(ev) {
		r.out.list = slices.DeleteFunc(r.out.list, func(ev event.Event) bool { return ev.Kind == event.End })
		r.out.Fail(ev)
	}
}

// undecodable deals with an event that the decoder has given up on.
func (r *Reader) undecodable(ev sse.Event, atEnd bool) {
	switch {
	case atEnd: // the event was cut off, and so was the response
		r.broken = true
	case ev.Reduced:
		r.byName(ev, tooLarge())
	default:
		r.byName(ev, invalid())
	}
}

// byName deals with an event of which only the name is known. err is the error
// where it may have carried output, nil where it cannot.
func (r *Reader) byName(ev sse.Event, err *event.Error) {
	switch r.meaningOf(ev) {
	case isEnd:
		r.done()
	case isIncomplete:
		r.outcome.choice(0).finish = "incomplete"
		r.done()
	case isFailure:
		r.fail(upstreamFailure("", http.StatusBadGateway, nil))
	case carriesNone:
		if err != nil {
			r.skipped++
		}
	case mayCarryOutput:
		if err != nil {
			r.fail(err)
		}
	}
}

// meaningOf returns what an event is by its name.
func (r *Reader) meaningOf(ev sse.Event) meaning {
	if r.means == nil {
		return mayCarryOutput
	}
	return r.means(string(ev.Name))
}

// fold takes the facts out of the events from start on, and leaves the output
// and, where it has come to that, the terminal event.
func (r *Reader) fold(start int) {
	kept := r.out.list[:start]
	for i := start; i < len(r.out.list); i++ {
		ev := &r.out.list[i]
		if ev.Kind == event.End {
			r.out.list = kept
			r.done()
			return
		}
		if ev.Kind == event.Failed {
			r.out.list = kept
			r.fail(ev.Err)
			return
		}
		r.outcome.take(ev)
		if !ev.Kind.IsOutput() {
			continue
		}
		if len(kept) == i { // it stands where it is to stand
			kept = r.out.list[:i+1]
		} else {
			kept = append(kept, *ev)
		}
	}
	r.out.list = kept
	r.outcome.spoke = r.outcome.spoke || r.out.silent > 0
}

// endOfBody ends the response because there is no more of it.
func (r *Reader) endOfBody() {
	if (r.outcome.finished() || r.endless && r.outcome.spoke) && !r.broken {
		r.done()
		return
	}
	r.fail(truncated())
}

// doneByWord ends the response with [DONE], which many servers send whatever has
// happened: before any output and any finish, it is no end.
func (r *Reader) doneByWord() {
	if finished, _ := r.outcome.progress(); !finished && !r.outcome.spoke {
		r.fail(truncated())
		return
	}
	r.done()
}

// done ends the response as complete, unless its generation has failed by its
// finish reasons.
func (r *Reader) done() {
	if reason := r.outcome.failure(); reason != "" {
		r.fail(generationFailed(reason))
		return
	}
	r.out.flushHalves()
	r.out.list = append(r.out.list, event.Event{Kind: event.Done, Result: r.outcome.result()})
	r.end()
}

// fail ends the response with an error.
func (r *Reader) fail(err *event.Error) {
	r.out.flushHalves()
	r.out.list = append(r.out.list, event.Event{Kind: event.Failed, Err: err})
	r.end()
}

// end lets go of what is not needed after the terminal event.
func (r *Reader) end() {
	r.state = Recognized
	r.ended = true
	r.hold, r.split, r.decoder = nil, nil, nil
}

// splitError returns the error for that of a splitter.
func splitError(err error) *event.Error {
	if errors.Is(err, sse.ErrEventTooLarge) {
		return tooLarge()
	}
	return invalid()
}

func invalid() *event.Error {
	return &event.Error{
		Code:    event.CodeInvalidUpstream,
		Status:  http.StatusBadGateway,
		Message: "the upstream sent an event that cannot be decoded",
	}
}

func tooLarge() *event.Error {
	return &event.Error{
		Code:    event.CodeEventTooLarge,
		Status:  http.StatusBadGateway,
		Message: "the upstream sent an event larger than max_event",
	}
}

func truncated() *event.Error {
	return &event.Error{
		Code:    event.CodeUpstreamTruncated,
		Status:  http.StatusBadGateway,
		Message: "the upstream ended the response before it was complete",
	}
}

// commonEvent is an event that means the same in every format.
type commonEvent uint8

const (
	commonNothing commonEvent = iota // it is the format's own
	commonPing                       // nothing, whatever its data
	commonEmpty                      // no data, or a value with nothing in it
	commonDone                       // OpenAI's [DONE], which others have taken over
	commonError
)

func common(ev *sse.Event) commonEvent {
	switch string(ev.Name) {
	case "error":
		return commonError
	case "ping", "keepalive", "keep-alive", "heartbeat":
		return commonPing
	}
	if len(ev.Data) > 16 || ev.Reduced { // more than any of these with white space around it
		return commonNothing
	}
	data := bytes.TrimSpace(ev.Data)
	switch string(data) {
	case "", "null", "{}", "[]", `""`:
		return commonEmpty
	}
	if isDone(data) {
		return commonDone
	}
	return commonNothing
}

// isDone reports whether data is [DONE], as relays write it: in lower case, in
// quotes, without the brackets.
func isDone(data []byte) bool {
	if data[0] == '"' {
		data = bytes.Trim(data, `"`)
	}
	return bytes.EqualFold(data, []byte("[DONE]")) || bytes.EqualFold(data, []byte("DONE"))
}

// objectOf returns the JSON object that is an event's data, if it is one.
func objectOf(data []byte) gjson.Result {
	if object := gjson.Parse(view(data)); object.IsObject() && json.IsValue(data) {
		return object
	}
	return gjson.Result{}
}
