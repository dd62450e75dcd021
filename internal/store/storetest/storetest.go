// Package storetest has the rules that every store.Store must keep, as tests. A
// package with a Store of its own runs them on it:
//
//	func TestConformance(t *testing.T) {
//		storetest.Run(t, func(t *testing.T) store.Store { return open(t) })
//	}
//
// The invariant: nothing is asked of a Store but what the comments of store.Store
// say. Every Store that open returns may share its data with the ones before.
package storetest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// wait bounds what must happen soon.
const wait = 10 * time.Second

// suite is one Store and what the tests do with it.
type suite struct {
	store.Store
	t *testing.T
}

// Run runs all tests. open returns a new Store; the tests close it.
func Run(t *testing.T, open func(t *testing.T) store.Store) {
	t.Helper()
	for _, test := range []struct {
		name string
		f    func(s suite)
	}{
		{"BeginFind", testBeginFind},
		{"BeginTwice", testBeginTwice},
		{"Access", testAccess},
		{"AppendRead", testAppendRead},
		{"AppendAgain", testAppendAgain},
		{"Gap", testGap},
		{"Finish", testFinish},
		{"FinishByAnother", testFinishByAnother},
		{"Expire", testExpire},
		{"Discard", testDiscard},
		{"Key", testKey},
		{"KeyAtOnce", testKeyAtOnce},
		{"KeyIsFreed", testKeyIsFreed},
		{"KeyOutlivesItsResponse", testKeyOutlivesItsResponse},
		{"Cancel", testCancel},
		{"Subscribe", testSubscribe},
		{"SubscribeClose", testSubscribeClose},
		{"Followed", testFollowed},
		{"Channel", testChannel},
		{"ChannelPositions", testChannelPositions},
		{"Lease", testLease},
		{"Context", testContext},
		{"Close", testClose},
		{"ReadAtEveryIndex", testReadAtEveryIndex},
		{"Follow", testFollow},
		{"Concurrent", testConcurrent},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := suite{open(t), t}
			defer func() { _ = s.Close() }()
			test.f(s)
		})
	}
}

// spec returns a response of a replica that nobody else knows.
func (s suite) spec() *store.Spec {
	return &store.Spec{
		ID: fanout.NewID(), Access: fanout.Access{Scope: "example.com", Owner: "ann"},
		Dialect: "text", Replica: fanout.NewID(), Started: time.Now(), Keep: time.Minute,
	}
}

func (s suite) begin(spec *store.Spec) store.Ref {
	s.t.Helper()
	begun, err := s.Begin(s.t.Context(), spec)
	if err != nil || begun.Found != nil {
		s.t.Fatalf("Begin: %+v, %v", begun, err)
	}
	return begun.Ref
}

// texts are events of the texts.
func texts(texts ...string) []event.Event {
	events := make([]event.Event, len(texts))
	for i, text := range texts {
		events[i] = event.Event{Kind: event.Text, Text: []byte(text)}
	}
	return events
}

var done = event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}}

// batch encodes events.
func (s suite) batch(first int, events ...event.Event) store.Batch {
	s.t.Helper()
	data, err := store.Encode(nil, first, events)
	if err != nil {
		s.t.Fatal(err)
	}
	return store.Batch{First: first, Last: first + len(events) - 1, Data: data}
}

func (s suite) append(ref store.Ref, first int, words ...string) store.Ack {
	s.t.Helper()
	ack, err := s.Append(s.t.Context(), ref, s.batch(first, texts(words...)...))
	if err != nil {
		s.t.Fatal(err)
	}
	return ack
}

func (s suite) final(first int, words ...string) store.Final {
	s.t.Helper()
	return store.Final{Batch: s.batch(first, append(texts(words...), done)...), Status: fanout.Completed}
}

// want fails the test unless err is what it must be.
func (s suite) want(what string, err, want error) {
	s.t.Helper()
	if !errors.Is(err, want) {
		s.t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// read returns what is stored after an index, as "1:Hel 2:lo 3:done".
func (s suite) read(id string, after int) string {
	s.t.Helper()
	var words []string
	for last := after; ; {
		page, err := s.Read(s.t.Context(), id, last)
		if err != nil {
			s.t.Fatal(err)
		}
		before := last
		for _, data := range page.Batches {
			first, events, err := store.Decode(data)
			if err != nil {
				s.t.Fatal(err)
			}
			for i := range events {
				if index := first + i; index > last {
					last = index
					words = append(words, fmt.Sprintf("%d:%s", index, word(&events[i])))
				}
			}
		}
		if last >= page.Last || last == before {
			return strings.Join(words, " ")
		}
	}
}

func word(ev *event.Event) string {
	switch ev.Kind {
	case event.Done:
		return "done"
	case event.Failed:
		return string(ev.Err.Code)
	default:
		return string(ev.Text)
	}
}

func testBeginFind(s suite) {
	spec := s.spec()
	spec.Channel = "chat"
	ref := s.begin(spec)
	meta, err := s.Find(s.t.Context(), spec.ID, spec.Access)
	if err != nil {
		s.t.Fatal(err)
	}
	if meta.Ref != ref || meta.Replica != spec.Replica || meta.Dialect != "text" || meta.Last != 0 ||
		meta.Status != fanout.InProgress || meta.Keep != spec.Keep || meta.Access != spec.Access ||
		meta.Channel != (store.Channel{Access: spec.Access, Name: "chat"}) ||
		meta.Started.UnixMilli() != spec.Started.UnixMilli() {
		s.t.Errorf("Find: %+v", meta)
	}
	about := &store.About{Format: "openai", Model: "m", Header: map[string][]string{"X-A": {"1", "2"}}}
	b := s.batch(1, texts("Hi")...)
	b.About = about
	if _, err := s.Append(s.t.Context(), ref, b); err != nil {
		s.t.Fatal(err)
	}
	s.append(ref, 2, "!")
	meta, err = s.Find(s.t.Context(), spec.ID, spec.Access)
	if err != nil || meta.About.Format != "openai" || meta.About.Model != "m" || meta.Last != 2 ||
		!slices.Equal(meta.About.Header["X-A"], []string{"1", "2"}) {
		s.t.Errorf("Find: %+v, %v", meta, err)
	}
}

func testBeginTwice(s suite) {
	spec := s.spec()
	spec.Call = fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
	ref := s.begin(spec)
	s.append(ref, 1, "Hi")
	begun, err := s.Begin(s.t.Context(), spec)
	if err != nil || begun.Ref != ref || begun.Last != 1 || begun.Found != nil {
		s.t.Errorf("the second Begin: %+v, %v", begun, err)
	}
	if got := s.read(spec.ID, 0); got != "1:Hi" {
		s.t.Errorf("read %q", got)
	}
}

func testAccess(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	strangers := []fanout.Access{
		{}, {Scope: "example.com"}, {Scope: "example.com", Owner: "bob"}, {Scope: "other", Owner: "ann"},
	}
	for _, as := range strangers {
		_, err := s.Find(s.t.Context(), spec.ID, as)
		s.want(fmt.Sprintf("Find as %q", as), err, store.ErrUnknown)
		_, err = s.Cancel(s.t.Context(), spec.ID, as)
		s.want(fmt.Sprintf("Cancel as %q", as), err, store.ErrUnknown)
	}
	if s.append(ref, 1, "a").Cancel {
		s.t.Error("a stranger has cancelled it")
	}
	spec = s.spec()
	spec.Owner = "" // knowing the id is enough
	s.begin(spec)
	if _, err := s.Find(s.t.Context(), spec.ID, fanout.Access{Scope: "example.com", Owner: "bob"}); err != nil {
		s.t.Error(err)
	}
	_, err := s.Find(s.t.Context(), fanout.NewID(), spec.Access)
	s.want("Find", err, store.ErrUnknown)
}

func testAppendRead(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	for i, words := range [][]string{{"a", "b"}, {"c"}, {"d", "e", "f"}} {
		if ack := s.append(ref, []int{1, 3, 4}[i], words...); ack.Cancel || ack.Followed {
			s.t.Errorf("Append: %+v", ack)
		}
	}
	for after, want := range []string{
		"1:a 2:b 3:c 4:d 5:e 6:f", "2:b 3:c 4:d 5:e 6:f", "3:c 4:d 5:e 6:f", "4:d 5:e 6:f", "5:e 6:f", "6:f", "",
	} {
		if got := s.read(spec.ID, after); got != want {
			s.t.Errorf("after %d: %q, want %q", after, got, want)
		}
	}
	_, err := s.Read(s.t.Context(), fanout.NewID(), 0)
	s.want("Read", err, store.ErrUnknown)
}

func testAppendAgain(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	s.append(ref, 1, "a", "b")
	if ack := s.append(ref, 1, "a", "b"); ack.Last != 2 {
		s.t.Errorf("Append again: %+v", ack)
	}
	s.append(ref, 3, "c")
	s.append(ref, 1, "a")
	if got := s.read(spec.ID, 0); got != "1:a 2:b 3:c" {
		s.t.Errorf("read %q", got)
	}
}

func testGap(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	s.append(ref, 1, "a")
	for _, first := range []int{3, 100} {
		ack, err := s.Append(s.t.Context(), ref, s.batch(first, texts("x")...))
		s.want("Append", err, store.ErrGap)
		if ack.Last != 1 {
			s.t.Errorf("Append at %d: %+v", first, ack)
		}
	}
	ack, err := s.Append(s.t.Context(), ref, s.batch(1, texts("a", "b")...)) // the first half is there
	s.want("Append", err, store.ErrGap)
	if ack.Last != 1 {
		s.t.Errorf("Append: %+v", ack)
	}
	ack, err = s.Finish(s.t.Context(), ref, s.final(3))
	s.want("Finish", err, store.ErrGap)
	if ack.Last != 1 {
		s.t.Errorf("Finish: %+v", ack)
	}
	ref.ID = fanout.NewID()
	_, err = s.Append(s.t.Context(), ref, s.batch(1, texts("x")...))
	s.want("Append", err, store.ErrUnknown)
	_, err = s.Finish(s.t.Context(), ref, s.final(1))
	s.want("Finish", err, store.ErrUnknown)
}

func testFinish(s suite) {
	for _, compact := range []bool{true, false} {
		spec := s.spec()
		ref := s.begin(spec)
		s.append(ref, 1, "a", "b")
		final := s.final(3, "c")
		if compact {
			final.Compact = s.batch(1, append(texts("a", "b", "c"), done)...).Data
		}
		for range 2 {
			if ack, err := s.Finish(s.t.Context(), ref, final); err != nil || ack.Last != 4 {
				s.t.Fatalf("Finish: %+v, %v", ack, err)
			}
		}
		_, err := s.Append(s.t.Context(), ref, s.batch(5, texts("x")...))
		s.want("Append", err, store.ErrFenced)
		meta, err := s.Find(s.t.Context(), spec.ID, spec.Access)
		if err != nil || meta.Status != fanout.Completed || meta.Last != 4 {
			s.t.Errorf("Find: %+v, %v", meta, err)
		}
		for after, want := range []string{"1:a 2:b 3:c 4:done", "2:b 3:c 4:done", "3:c 4:done", "4:done", ""} {
			if got := s.read(spec.ID, after); got != want {
				s.t.Errorf("after %d: %q, want %q", after, got, want)
			}
		}
		if meta, err := s.Cancel(s.t.Context(), spec.ID, spec.Access); err != nil || meta.Status != fanout.Completed {
			s.t.Errorf("Cancel: %+v, %v", meta, err)
		}
	}
}

func testFinishByAnother(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	s.append(ref, 1, "a")
	meta, err := s.Find(s.t.Context(), spec.ID, spec.Access)
	if err != nil {
		s.t.Fatal(err)
	}
	other := meta.Ref
	other.Replica = fanout.NewID()
	final := store.Final{
		Batch: s.batch(2, event.Event{Kind: event.Failed, Err: &event.Error{
			Code: event.CodeInterrupted, Status: 502, Message: "gone",
		}}), Status: fanout.Interrupted,
	}
	if _, err := s.Finish(s.t.Context(), other, final); err != nil {
		s.t.Fatal(err)
	}
	_, err = s.Append(s.t.Context(), ref, s.batch(2, texts("b")...))
	s.want("Append", err, store.ErrFenced)
	_, err = s.Finish(s.t.Context(), ref, s.final(2))
	s.want("Finish", err, store.ErrFenced)
	if got := s.read(spec.ID, 0); got != "1:a 2:interrupted" {
		s.t.Errorf("read %q", got)
	}
}

func testExpire(s suite) {
	spec := s.spec()
	spec.Keep = 50 * time.Millisecond
	ref := s.begin(spec)
	if _, err := s.Finish(s.t.Context(), ref, s.final(1, "a")); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("it expires", func() bool {
		_, err := s.Find(s.t.Context(), spec.ID, spec.Access)
		return errors.Is(err, store.ErrExpired)
	})
	_, err := s.Find(s.t.Context(), spec.ID, fanout.Access{Scope: "example.com", Owner: "bob"})
	s.want("Find of a stranger", err, store.ErrUnknown)
	_, err = s.Cancel(s.t.Context(), spec.ID, spec.Access)
	s.want("Cancel", err, store.ErrExpired)
	_, err = s.Read(s.t.Context(), spec.ID, 0)
	s.want("Read", err, store.ErrExpired)
}

// eventually waits until something is true.
func (s suite) eventually(what string, ok func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(wait); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("waited in vain: %s", what)
		}
	}
}

func testDiscard(s suite) {
	spec := s.spec()
	spec.Call = fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
	spec.Channel = fanout.NewID()
	ref := s.begin(spec)
	if err := s.Announce(s.t.Context(), ref); err != nil {
		s.t.Fatal(err)
	}
	inbox := s.subscribe(store.Topic{Kind: store.ResponseTopic, Name: spec.ID})
	for range 2 {
		if err := s.Discard(s.t.Context(), ref); err != nil {
			s.t.Fatal(err)
		}
	}
	if m := inbox.next(); !m.Gone {
		s.t.Errorf("message: %+v", m)
	}
	_, err := s.Find(s.t.Context(), spec.ID, spec.Access)
	s.want("Find", err, store.ErrUnknown)
	page, err := s.Channel(s.t.Context(), ref.Channel, "", 10)
	if err != nil || len(page.Running) != 0 || len(page.Notices) != 2 || page.Notices[1].Status != fanout.Broken {
		s.t.Errorf("Channel: %+v, %v", page, err)
	}
	spec.ID = fanout.NewID()
	s.begin(spec) // the call may be made again
}

func testKey(s suite) {
	spec := s.spec()
	spec.Call = fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
	s.begin(spec)
	again := *spec
	again.ID, again.Replica = fanout.NewID(), fanout.NewID()
	begun, err := s.Begin(s.t.Context(), &again)
	if err != nil || begun.Found == nil || begun.Found.ID != spec.ID {
		s.t.Fatalf("Begin: %+v, %v", begun, err)
	}
	_, err = s.Find(s.t.Context(), again.ID, spec.Access)
	s.want("Find", err, store.ErrUnknown)
	again.Call.Body = "b"
	_, err = s.Begin(s.t.Context(), &again)
	s.want("Begin with another body", err, store.ErrMismatch)
	again.Call.Request = "POST /other"
	s.begin(&again)
	ids, err := s.FindKey(s.t.Context(), spec.Call.Key)
	slices.Sort(ids)
	both := []string{spec.ID, again.ID}
	slices.Sort(both)
	if err != nil || !slices.Equal(ids, both) {
		s.t.Errorf("FindKey: %q, %v, want %q", ids, err, both)
	}
	for _, key := range []string{"", fanout.NewID()} {
		if ids, err := s.FindKey(s.t.Context(), key); err != nil || len(ids) != 0 {
			s.t.Errorf("FindKey(%q): %q, %v", key, ids, err)
		}
	}
}

func testKeyAtOnce(s suite) {
	for range 20 {
		call := fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
		var made, found sync.Map
		var running sync.WaitGroup
		for range 4 {
			spec := s.spec()
			spec.Call = call
			running.Go(func() {
				begun, err := s.Begin(s.t.Context(), spec)
				switch {
				case err != nil:
					s.t.Error(err)
				case begun.Found != nil:
					found.Store(begun.Found.ID, true)
				default:
					made.Store(begun.Ref.ID, true)
				}
			})
		}
		running.Wait()
		var ids []string
		made.Range(func(id, _ any) bool { ids = append(ids, id.(string)); return true })
		found.Range(func(id, _ any) bool { ids = append(ids, id.(string)); return true })
		if len(ids) != 2 || ids[0] != ids[1] {
			s.t.Fatalf("made and found: %q, want one and the same", ids)
		}
	}
}

func testKeyIsFreed(s suite) {
	spec := s.spec()
	spec.Call = fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
	ref := s.begin(spec)
	final := s.final(1)
	final.Free = true
	if _, err := s.Finish(s.t.Context(), ref, final); err != nil {
		s.t.Fatal(err)
	}
	spec.ID = fanout.NewID()
	s.begin(spec)
}

func testKeyOutlivesItsResponse(s suite) {
	spec := s.spec()
	spec.Keep = 20 * time.Millisecond
	spec.Call = fanout.Call{Key: fanout.NewID(), Request: "POST /", Body: "a"}
	if _, err := s.Finish(s.t.Context(), s.begin(spec), s.final(1)); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("it expires", func() bool {
		_, err := s.Find(s.t.Context(), spec.ID, spec.Access)
		return errors.Is(err, store.ErrExpired)
	})
	spec.ID, spec.Call.Body = fanout.NewID(), "b"
	s.begin(spec)
}

func testCancel(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	inbox := s.subscribe(store.Topic{Kind: store.ReplicaTopic, Name: spec.Replica})
	if s.append(ref, 1, "a").Cancel {
		s.t.Error("cancelled by nobody")
	}
	for range 2 {
		meta, err := s.Cancel(s.t.Context(), spec.ID, spec.Access)
		if err != nil || meta.Status != fanout.InProgress {
			s.t.Fatalf("Cancel: %+v, %v", meta, err)
		}
		if m := inbox.next(); string(m.Data) != spec.ID {
			s.t.Errorf("message: %+v", m)
		}
	}
	if !s.append(ref, 2, "b").Cancel {
		s.t.Error("Append does not tell of the wish")
	}
	_, err := s.Cancel(s.t.Context(), fanout.NewID(), spec.Access)
	s.want("Cancel", err, store.ErrUnknown)
}

// inbox has the messages of a topic.
type inbox struct {
	t   *testing.T
	sub store.Subscription
	ch  chan store.Message
}

func (s suite) subscribe(topic store.Topic) *inbox {
	s.t.Helper()
	in := &inbox{t: s.t, ch: make(chan store.Message, 4096)}
	var err error
	in.sub, err = s.Subscribe(s.t.Context(), topic, func(m store.Message) {
		m.Data = slices.Clone(m.Data)
		in.ch <- m
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return in
}

func (in *inbox) next() store.Message {
	in.t.Helper()
	select {
	case m := <-in.ch:
		return m
	case <-time.After(wait):
		in.t.Fatal("no message")
		return store.Message{}
	}
}

func testSubscribe(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	topic := store.Topic{Kind: store.ResponseTopic, Name: spec.ID}
	s.append(ref, 1, "before")
	one, two := s.subscribe(topic), s.subscribe(topic)
	const batches = 200
	followed := false
	for i := range batches {
		followed = s.append(ref, 2+i, fmt.Sprint(i)).Followed
	}
	if !followed {
		s.t.Error("Append does not tell that somebody follows")
	}
	if _, err := s.Finish(s.t.Context(), ref, s.final(2+batches)); err != nil {
		s.t.Fatal(err)
	}
	for _, in := range []*inbox{one, two} {
		for i := range batches + 1 {
			m := in.next()
			first, events, err := store.Decode(m.Data)
			for first == 1 { // what was sent before may come as well
				m = in.next()
				first, events, err = store.Decode(m.Data)
			}
			if err != nil || first != 2+i || len(events) != 1 || m.Reset || m.Gone {
				s.t.Fatalf("message %d: %+v: %d events from %d, %v", i, m, len(events), first, err)
			}
		}
	}
}

// A response is followed as long as there are subscribers.
func testFollowed(s suite) {
	spec := s.spec()
	s.begin(spec)
	check := func(what string, want bool) {
		s.t.Helper()
		for deadline := time.Now().Add(wait); ; time.Sleep(time.Millisecond) {
			followed, err := s.Followed(s.t.Context(), spec.ID)
			if err != nil {
				s.t.Fatal(err)
			}
			if followed == want {
				return
			}
			if time.Now().After(deadline) {
				s.t.Fatalf("%s: %t", what, followed)
			}
		}
	}
	check("nobody has come", false)
	one := s.subscribe(store.Topic{Kind: store.ResponseTopic, Name: spec.ID})
	two := s.subscribe(store.Topic{Kind: store.ResponseTopic, Name: spec.ID})
	check("two have come", true)
	one.sub.Close()
	check("one is left", true)
	two.sub.Close()
	check("both have left", false)
}

func testSubscribeClose(s suite) {
	spec := s.spec()
	ref := s.begin(spec)
	topic := store.Topic{Kind: store.ResponseTopic, Name: spec.ID}
	last := 0
	for range 50 { // closing and opening again at once loses nothing
		in := s.subscribe(topic)
		last++
		s.append(ref, last, "a")
		for first := 0; first != last; { // what was sent before may come as well
			var err error
			if first, _, err = store.Decode(in.next().Data); err != nil || first > last {
				s.t.Fatalf("message of %d, %v, want %d", first, err, last)
			}
		}
		in.sub.Close()
		in.sub.Close()
		last++
		s.append(ref, last, "b")
		if len(in.ch) > 0 {
			s.t.Fatal("a message after Close")
		}
	}
}

func testChannel(s suite) {
	first, second := s.spec(), s.spec()
	first.Channel = fanout.NewID()
	second.Channel = first.Channel
	a, b := s.begin(first), s.begin(second)
	inbox := s.subscribe(store.Topic{Kind: store.ChannelTopic, Channel: a.Channel})
	s.append(a, 1, "unheard") // not announced yet
	for _, ref := range []store.Ref{a, a, b} {
		if err := s.Announce(s.t.Context(), ref); err != nil {
			s.t.Fatal(err)
		}
	}
	s.append(a, 2, "x", "y")
	s.append(b, 1, "z")
	page, err := s.Channel(s.t.Context(), a.Channel, "", 100)
	if err != nil || !slices.Equal(page.Running, []string{a.ID, b.ID}) {
		s.t.Fatalf("Channel: %+v, %v", page, err)
	}
	final := s.final(4)
	final.Model = "a model with spaces"
	if _, err := s.Finish(s.t.Context(), a, final); err != nil {
		s.t.Fatal(err)
	}
	page, err = s.Channel(s.t.Context(), a.Channel, page.Head, 100)
	if err != nil || !slices.Equal(page.Running, []string{b.ID}) || len(page.Notices) != 1 {
		s.t.Fatalf("Channel: %+v, %v", page, err)
	}
	started := time.UnixMilli(first.Started.UnixMilli())
	want := []store.Notice{
		{Kind: store.Started, ID: a.ID, At: started},
		{Kind: store.Started, ID: b.ID, At: time.UnixMilli(second.Started.UnixMilli())},
		{Kind: store.Said, ID: a.ID, First: 2, Last: 3},
		{Kind: store.Said, ID: b.ID, First: 1, Last: 1},
		{Kind: store.Ended, ID: a.ID, First: 4, Last: 4, Status: fanout.Completed, Model: "a model with spaces"},
	}
	page, err = s.Channel(s.t.Context(), a.Channel, "", 100)
	if err != nil || len(page.Notices) != len(want) {
		s.t.Fatalf("Channel: %+v, %v", page, err)
	}
	for i, n := range page.Notices {
		live, err := store.ParseMessage(inbox.next().Data)
		want[i].Position = n.Position
		if n != want[i] || live != want[i] || err != nil {
			s.t.Errorf("notice %d: %+v, live %+v, %v, want %+v", i, n, live, err, want[i])
		}
	}
	if last := page.Notices[len(want)-1].Position; last != page.Head {
		s.t.Errorf("Head %q, want %q", page.Head, last)
	}
}

func testChannelPositions(s suite) {
	spec := s.spec()
	spec.Channel = fanout.NewID()
	ref := s.begin(spec)
	page, err := s.Channel(s.t.Context(), ref.Channel, "", 10)
	if err != nil || page.Head != "" || len(page.Notices) != 0 || len(page.Running) != 0 {
		s.t.Errorf("an unknown channel: %+v, %v", page, err)
	}
	if err := s.Announce(s.t.Context(), ref); err != nil {
		s.t.Fatal(err)
	}
	for i := range 9 {
		s.append(ref, 1+i, "a")
	}
	var all []store.Notice
	for at := store.Position(""); len(all) < 10; {
		page, err := s.Channel(s.t.Context(), ref.Channel, at, 3)
		if err != nil || len(page.Notices) == 0 || len(page.Notices) > 3 {
			s.t.Fatalf("Channel from %q: %+v, %v", at, page, err)
		}
		all = append(all, page.Notices...)
		at = all[len(all)-1].Position
	}
	epoch, number, err := all[9].Position.Parse()
	if err != nil {
		s.t.Fatal(err)
	}
	for _, test := range []struct {
		at   store.Position
		want error
	}{
		{store.NewPosition(epoch, number), nil},
		{store.NewPosition(epoch, number+1), store.ErrUnknown},
		{store.NewPosition("other", number), store.ErrExpired},
		{"x", store.ErrUnknown},
		{store.Position(epoch + ".01"), store.ErrUnknown},
		{store.Position(epoch + ".-1"), store.ErrUnknown},
	} {
		_, err := s.Channel(s.t.Context(), ref.Channel, test.at, 10)
		s.want(fmt.Sprintf("Channel from %q", test.at), err, test.want)
	}
	const more = 10000 // than any Store keeps
	for i := range more {
		s.append(ref, 10+i, "a")
	}
	_, err = s.Channel(s.t.Context(), ref.Channel, all[0].Position, 10)
	s.want("Channel from what is no longer kept", err, store.ErrExpired)
	page, err = s.Channel(s.t.Context(), ref.Channel, "", 10)
	if err != nil || len(page.Notices) != 10 || !slices.Equal(page.Running, []string{ref.ID}) {
		s.t.Errorf("Channel: %d notices, %q runs, %v", len(page.Notices), page.Running, err)
	}
}

func testLease(s suite) {
	a, b, c := fanout.NewID(), fanout.NewID(), fanout.NewID()
	beat, err := s.Beat(s.t.Context(), a, nil)
	if err != nil || !beat.Lapsed || len(beat.Missing) != 0 {
		s.t.Errorf("the first Beat: %+v, %v", beat, err)
	}
	beat, err = s.Beat(s.t.Context(), a, []string{a, b, c})
	if err != nil || beat.Lapsed || !slices.Equal(beat.Missing, []string{b, c}) {
		s.t.Errorf("the second Beat: %+v, %v", beat, err)
	}
	if _, err := s.Beat(s.t.Context(), b, nil); err != nil {
		s.t.Fatal(err)
	}
	if err := s.Leave(s.t.Context(), a); err != nil {
		s.t.Fatal(err)
	}
	beat, err = s.Beat(s.t.Context(), b, []string{a})
	if err != nil || beat.Lapsed || !slices.Equal(beat.Missing, []string{a}) {
		s.t.Errorf("Beat after Leave: %+v, %v", beat, err)
	}
	if s.Lease() <= 0 {
		s.t.Errorf("Lease: %v", s.Lease())
	}
}

func testContext(s suite) {
	ctx, cancel := context.WithCancel(s.t.Context())
	cancel()
	for name, err := range s.everything(ctx) {
		if !errors.Is(err, context.Canceled) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
}

func testClose(s suite) {
	in := s.subscribe(store.Topic{Kind: store.ReplicaTopic, Name: "r"})
	for range 2 {
		if err := s.Close(); err != nil {
			s.t.Errorf("Close: %v", err)
		}
	}
	for name, err := range s.everything(s.t.Context()) {
		if !errors.Is(err, store.ErrClosed) {
			s.t.Errorf("%s: %v", name, err)
		}
	}
	in.sub.Close()
}

// everything calls every method and returns the errors.
func (s suite) everything(ctx context.Context) map[string]error {
	spec := s.spec()
	spec.Channel = "c"
	channel := store.Channel{Access: spec.Access, Name: "c"}
	ref := store.Ref{ID: spec.ID, Fence: 1, Replica: spec.Replica, Access: spec.Access, Keep: spec.Keep, Channel: channel}
	errs := make(map[string]error)
	_, errs["Begin"] = s.Begin(ctx, spec)
	errs["Announce"] = s.Announce(ctx, ref)
	_, errs["Append"] = s.Append(ctx, ref, s.batch(1, texts("a")...))
	_, errs["Finish"] = s.Finish(ctx, ref, s.final(1))
	errs["Discard"] = s.Discard(ctx, ref)
	_, errs["Find"] = s.Find(ctx, spec.ID, spec.Access)
	_, errs["FindKey"] = s.FindKey(ctx, "key")
	_, errs["Read"] = s.Read(ctx, spec.ID, 0)
	_, errs["Followed"] = s.Followed(ctx, spec.ID)
	_, errs["Cancel"] = s.Cancel(ctx, spec.ID, spec.Access)
	_, errs["Channel"] = s.Channel(ctx, channel, "", 10)
	_, errs["Subscribe"] = s.Subscribe(ctx, store.Topic{Kind: store.ReplicaTopic, Name: "r"}, func(store.Message) {})
	_, errs["Beat"] = s.Beat(ctx, spec.Replica, nil)
	errs["Leave"] = s.Leave(ctx, spec.Replica)
	return errs
}
