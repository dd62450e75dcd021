package e2e_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// chatty is what a route with channels has.
const chatty = "owner {http.request.header.X-User}\nchannel {http.request.header.X-Chat-Id}\n"

// spoken is the data of a channel's frame.
type spoken struct {
	Event        string
	ResponseID   string `json:"response_id"`
	StartedAt    string `json:"started_at"`
	Status       string
	Model        string
	Text         string
	FinishReason string `json:"finish_reason"`
}

// hear decodes a channel's frame.
func hear(t *testing.T, f rig.Frame) spoken {
	t.Helper()
	s := spoken{Event: f.Event}
	if err := json.Unmarshal([]byte(f.Data), &s); err != nil || !strings.HasPrefix(f.Data, `{"response_id":"`+s.ResponseID+`"`) {
		t.Fatalf("%+v: %v", f, err)
	}
	return s
}

// listen follows a channel as ann.
func listen(t *testing.T, c *rig.Caddy, path string, header ...string) *rig.FrameReader {
	t.Helper()
	resp := get("/llm/channels/"+path, append([]string{"X-User", "ann"}, header...)...).do(t, c)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("status %d", resp.StatusCode)
	}
	equal(t, "type", resp.Header.Get("Content-Type"), "text/event-stream; charset=utf-8")
	return rig.NewFrameReader(resp.Body)
}

// say asks for a response on a channel as ann.
func say(chat string) request {
	return post(`{"stream":true}`, "X-User", "ann", "X-Chat-Id", chat)
}

// voices is a backend whose answers to different chats the test speaks.
type voices map[string]chan string

func newVoices(names ...string) voices {
	v := make(voices)
	for _, name := range names {
		v[name] = make(chan string)
	}
	return v
}

func (v voices) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	for {
		select {
		case piece, more := <-v[r.Header.Get("X-Voice")]:
			if !more {
				return
			}
			rig.Say(w, piece)
		case <-r.Context().Done():
			return
		}
	}
}

// start begins the response of a voice, on the channel c1. The channel tells its id.
func (v voices) start(t *testing.T, c *rig.Caddy, name string) {
	t.Helper()
	q := say("c1")
	q.header.Set("X-Voice", name)
	go func() {
		resp, err := q.try(t.Context(), c)
		if err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
}

// A second tab learns of a response while the backend has not said a word
// (cloudflare/agents#366), and at last how it has ended.
func TestChannelTellsOfBeginningAndEnd(t *testing.T) {
	soonest := time.Hour // one of them is not held up by what else this machine does
	for name, tc := range map[string]struct {
		pieces []string
		cancel bool
		status string
	}{
		"done":      {[]string{rig.Chunk("a"), rig.Stop}, false, "done"},
		"failed":    {[]string{rig.Chunk("a"), "data: {\"error\":{\"message\":\"x\"}}\n\n"}, false, "failed"},
		"truncated": {[]string{rig.Chunk("a")}, false, "failed"},
		"no output": {nil, false, "failed"},
		"cancelled": {[]string{rig.Chunk("a")}, true, "cancelled"},
	} {
		t.Run(name, func(t *testing.T) {
			v := newVoices("x")
			c, _ := keep(t, chatty, v.ServeHTTP)
			tab := listen(t, c, "c1")
			at := time.Now()
			v.start(t, c, "x")
			started := hear(t, frames(t, tab, 1)[0])
			soonest = min(soonest, time.Since(at))
			when, err := time.Parse(time.RFC3339Nano, started.StartedAt)
			if started.Event != "started" || err != nil || when.Before(at.Add(-time.Second)) || when.After(time.Now()) {
				t.Fatalf("%+v: %v", started, err)
			}
			for _, piece := range tc.pieces {
				v["x"] <- piece
			}
			if tc.cancel {
				q := get("/llm/streams/"+started.ResponseID, "X-User", "ann")
				q.method = http.MethodDelete
				equal(t, "cancel", q.do(t, c).StatusCode, http.StatusOK)
			} else {
				close(v["x"])
			}
			ended := hear(t, frames(t, tab, 1)[0])
			equal(t, "ended", fmt.Sprint(ended.Event, ended.ResponseID, ended.Status), fmt.Sprint("ended", started.ResponseID, tc.status))
			if name == "done" {
				equal(t, "model", ended.Model, "m")
			}
		})
	}
	if soonest > 50*time.Millisecond {
		t.Errorf("started after %v", soonest)
	}
}

// With ?follow=1 a channel carries the frames of all its responses, each from
// its start, between those that tell of beginnings and ends.
func TestChannelCarriesFrames(t *testing.T) {
	v := newVoices("x", "y")
	c, _ := keep(t, chatty, v.ServeHTTP)
	tab, plain := listen(t, c, "c1?follow=1"), listen(t, c, "c1")
	var got []spoken
	next := func(n int) {
		t.Helper()
		for _, f := range frames(t, tab, n) {
			got = append(got, hear(t, f))
		}
	}
	v.start(t, c, "x")
	next(1)
	v.start(t, c, "y")
	next(1)
	x, y := got[0].ResponseID, got[1].ResponseID
	for _, name := range []string{"x", "y", "y", "x"} {
		v[name] <- rig.Chunk(name)
		next(1)
	}
	late := listen(t, c, "c1?follow=1")
	joined := make(map[string]string)
	for _, f := range frames(t, late, 6) { // two beginnings, two deltas of each
		s := hear(t, f)
		joined[s.ResponseID] += s.Event + s.Text + " "
	}
	equal(t, "who joins late", fmt.Sprint(joined), fmt.Sprint(map[string]string{x: "started x x ", y: "started y y "}))
	v["y"] <- rig.Stop
	next(2)
	v["x"] <- rig.Stop
	next(2)
	want := []spoken{
		{Event: "started", ResponseID: x, StartedAt: got[0].StartedAt},
		{Event: "started", ResponseID: y, StartedAt: got[1].StartedAt},
		{ResponseID: x, Text: "x"},
		{ResponseID: y, Text: "y"},
		{ResponseID: y, Text: "y"},
		{ResponseID: x, Text: "x"},
		{Event: "done", ResponseID: y, FinishReason: "stop"},
		{Event: "ended", ResponseID: y, Status: "done", Model: "m"},
		{Event: "done", ResponseID: x, FinishReason: "stop"},
		{Event: "ended", ResponseID: x, Status: "done", Model: "m"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("the frames are\n%+v\nnot\n%+v", got, want)
	}
	live := fmt.Sprint(frames(t, late, 4))
	for _, event := range []string{"done", "ended"} {
		equal(t, "late: "+event, strings.Count(live, event+` {"response_id":"`), 2)
	}
	var notices []string
	for _, f := range frames(t, plain, 4) {
		notices = append(notices, f.Event+" "+hear(t, f).ResponseID)
	}
	equal(t, "without follow", fmt.Sprint(notices), fmt.Sprint([]string{"started " + x, "started " + y, "ended " + y, "ended " + x}))
}

// tale is what the frames of a channel have told of its responses: for each,
// its beginning, its text, and its end, which must come in this order and once.
type tale map[string]string

func (l tale) add(t *testing.T, f rig.Frame) {
	t.Helper()
	s := hear(t, f)
	so := l[s.ResponseID]
	if (s.Event == "started") != (so == "") || strings.HasSuffix(so, "ended") {
		t.Fatalf("%+v after %q", s, so)
	}
	l[s.ResponseID] = so + s.Event + s.Text
}

// A client that is cut off after any frame and comes back has everything once.
func TestChannelReconnects(t *testing.T) {
	v := newVoices("x", "y", "z")
	c, _ := keep(t, chatty, v.ServeHTTP)
	tab := listen(t, c, "c1?follow=1")
	var all []rig.Frame
	for step := range strings.FieldsSeq("+x +y x y x +z z y .y x z .x .z") {
		switch step[0] {
		case '+':
			v.start(t, c, step[1:])
			all = append(all, frames(t, tab, 1)...)
		case '.':
			v[step[1:]] <- rig.Stop
			all = append(all, frames(t, tab, 2)...)
		default:
			v[step] <- rig.Chunk(fmt.Sprint(step, len(all), "ä "))
			all = append(all, frames(t, tab, 1)...)
		}
	}
	whole := make(tale)
	for _, f := range all {
		whole.add(t, f)
	}
	for _, how := range []string{"header", "query"} {
		for k := range all[:len(all)-1] {
			told := make(tale)
			for _, f := range all[:k+1] {
				told.add(t, f)
			}
			path, header := "c1?follow=1", []string{"Last-Event-ID", all[k].ID}
			if how == "query" {
				path, header = path+"&last_event_id="+url.QueryEscape(all[k].ID), nil
			}
			for fr := listen(t, c, path, header...); fmt.Sprint(told) != fmt.Sprint(whole); {
				f, err := fr.Next()
				if err != nil {
					t.Fatalf("after %d of %d frames there is %v, then %v", k+1, len(all), told, err)
				}
				told.add(t, f)
			}
		}
	}
}

// The same while the responses run: a client that is cut after every frame.
func TestChannelCutAfterEveryFrame(t *testing.T) {
	v := newVoices("x", "y")
	c, _ := keep(t, chatty, v.ServeHTTP)
	last, told := "", make(tale)
	first := listen(t, c, "c1?follow=1")
	next := func() {
		t.Helper()
		fr := first
		if last != "" {
			fr = listen(t, c, "c1?follow=1", "Last-Event-ID", last)
		}
		f := frames(t, fr, 1)[0]
		told.add(t, f)
		last = f.ID
	}
	v.start(t, c, "x")
	next()
	v.start(t, c, "y")
	next()
	for i := range 20 {
		name := "xy"[i%2 : i%2+1]
		v[name] <- rig.Chunk(name)
		next()
	}
	for _, name := range []string{"y", "x"} {
		v[name] <- rig.Stop
		next()
		next()
	}
	var texts []string
	for _, s := range told {
		texts = append(texts, s)
	}
	slices.Sort(texts)
	equal(t, "all", fmt.Sprint(texts), fmt.Sprintf("[started%sdoneended started%sdoneended]", strings.Repeat("x", 10), strings.Repeat("y", 10)))
}

// Another owner's channel of the same name is another one.
func TestChannelsOfOthers(t *testing.T) {
	c, _ := keep(t, chatty+"scope {http.request.header.X-Tenant}", whole3)
	others := map[string][]string{
		"another owner": {"X-User", "bob", "X-Tenant", "t"},
		"another scope": {"X-User", "ann", "X-Tenant", "u"},
	}
	tabs := make(map[string]*rig.FrameReader)
	for who, header := range others {
		tabs[who] = rig.NewFrameReader(get("/llm/channels/c1?follow=1", header...).do(t, c).Body)
	}
	tabs["another channel"] = rig.NewFrameReader(get("/llm/channels/c2?follow=1", "X-User", "ann", "X-Tenant", "t").do(t, c).Body)
	complete(t, c, post(`{}`, "X-User", "ann", "X-Tenant", "t", "X-Chat-Id", "c1"))
	others["another channel"] = []string{"X-User", "ann", "X-Tenant", "t"}
	for who, tab := range tabs {
		chat := "c1"
		if who == "another channel" {
			chat = "c2"
		}
		own, _ := complete(t, c, post(`{}`, append(others[who], "X-Chat-Id", chat)...))
		equal(t, "the first that "+who+" hears of", hear(t, frames(t, tab, 1)[0]).ResponseID, own)
	}
}

// What a client of a channel comes back with is checked like every cursor.
func TestChannelCursors(t *testing.T) {
	c, _ := keep(t, chatty+"keep 100ms", whole3)
	tab := listen(t, c, "c1?follow=1")
	complete(t, c, say("c1"))
	id := frames(t, tab, 1)[0].ID
	for name, cursor := range map[string]string{
		"nothing of ours": "x", "an event id": id[:22] + ":1", "the future": id + "9", "a sign": id[:22] + ".+1",
		"a broken place": id + ".x", "long": id + strings.Repeat(".x", 4<<10),
	} {
		refused(t, name, get("/llm/channels/c1", "X-User", "ann", "Last-Event-ID", cursor).do(t, c), 400, "bad_cursor")
	}
	for deadline := time.Now().Add(5 * time.Second); ; { // what came after it goes, and must not be missed silently
		resp := get("/llm/channels/c1?follow=1", "X-User", "ann", "Last-Event-ID", id).do(t, c)
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusGone {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("what is no longer kept was not missed")
		}
	}
	c, _ = keep(t, chatty, whole3)
	resp := get("/llm/channels/c1", "X-User", "ann", "Last-Event-ID", id).do(t, c)
	refused(t, "of a former process", resp, 410, "expired_response")
}

// A follower that loses something while it looks away is cut off, and told
// why when it comes back.
func TestChannelFollowerMissesNothingSilently(t *testing.T) {
	big := strings.Repeat("x", 64<<10)
	backend := rig.NewBackend(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		rig.EventStream(w)
		for range 48 { // 3 MiB
			rig.Say(w, rig.Chunk(big))
		}
		rig.Say(w, rig.Stop)
	})
	c := rig.Start(t, "{\n\tllm_stream {\n\t\tmax_memory 5MiB\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tresume /llm {\n"+
		chatty+"\n}\n\t}\n\treverse_proxy "+backend.Addr+"\n}")
	tab := stall(t, c, get("/llm/channels/c1?follow=1", "X-User", "ann"))
	for range 8 { // each takes the room of the one before, and no socket holds it all
		complete(t, c, say("c1"))
	}
	last := ""
	for fr := tab.frames(t); ; {
		f, err := fr.Next()
		if err != nil {
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("it was cut off with %v", err)
			}
			break
		}
		last = f.ID
	}
	resp := get("/llm/channels/c1?follow=1", "X-User", "ann", "Last-Event-ID", last).do(t, c)
	refused(t, "coming back", resp, 410, "expired_response")
}

// The response of a channel that began last can be had from its start, in the
// producing route's dialect; where none runs, there is nothing to go on with.
func TestCurrentResponseOfAChannel(t *testing.T) {
	ticks := make(chan struct{})
	c, backend := keep(t, "owner anyone\nchannel {http.request.header.X-Chat-Id}", ticking(2, ticks, nil))
	const path = "/llm/channels/c1/current"
	equal(t, "before", get(path).do(t, c).StatusCode, http.StatusNoContent)
	go func() { ticks <- struct{}{} }()
	first := post(`{"stream":true}`, "X-Chat-Id", "c1").do(t, c)
	id := first.Header.Get("X-Response-Id")
	again := get(path).do(t, c)
	go func() { ticks <- struct{}{} }()
	equal(t, "the response", again.Header.Get("X-Response-Id"), id)
	equal(t, "its text", rig.ReadMerged(t, again.Body).Text, rig.ReadMerged(t, first.Body).Text)
	equal(t, "after", get(path).do(t, c).StatusCode, http.StatusNoContent)
	equal(t, "another's channel", get("/llm/channels/c2/current").do(t, c).StatusCode, http.StatusNoContent)
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}
