package e2e_test

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// What backends do, and models: they are trusted no more than clients. What is
// held for one response is bounded by max_event and max_size.

// relays are the ways in which a response is relayed.
var relays = map[string]string{
	"attached": "max_event 1MiB", "tied": "max_event 1MiB\nslow_client drop", "resume": "max_event 1MiB\nresume /llm {\nmax_size 1MiB\n}",
}

// CWE-770: a line, a comment, a field or an event without an end is read no further
// than max_event, before the format is known and after it.
func TestEndlessUpstream(t *testing.T) {
	for what, piece := range map[string]string{
		"line":        strings.Repeat("x", 32<<10),
		"event":       strings.Repeat("data: x\n", 4<<10),
		"JSON string": `data: {"choices":[{"delta":{"content":"` + strings.Repeat("x", 32<<10),
		"field name":  strings.Repeat("data", 8<<10),
		"empty data":  strings.Repeat("data:\n", 4<<10),
	} {
		for way, options := range relays {
			for begun, begin := range map[string]string{"at once": "data: ", "after a word": rig.Chunk("a") + "data: "} {
				t.Run(what+"/"+way+"/"+begun, func(t *testing.T) {
					cut := make(chan struct{}, 1)
					x := attack(t, options, endless(begin, piece, cut))
					holds(t, 16<<20, func() {
						if r := x.ask(); r.code() != "event_too_large" {
							t.Errorf("%d %.300q", r.StatusCode, r.body)
						}
						await(t, "the backend is cut off", cut)
					})
				})
			}
		}
	}
}

// CWE-835, CWE-770: comments are nothing, however many: they hold no timer up and
// no memory.
func TestEndlessComments(t *testing.T) {
	for what, piece := range map[string]string{
		"comments": strings.Repeat(": x\n", 1<<10), "blank lines": strings.Repeat("\n", 1<<10), "one comment": ":" + strings.Repeat("x", 32<<10),
		"pings": strings.Repeat("event: ping\ndata: {}\n\n", 100), "empty deltas": strings.Repeat(rig.Chunk(""), 20),
		"unknown fields": strings.Repeat("x: y\n", 1<<10), "ids": strings.Repeat("id: 1\n\n", 1<<10),
	} {
		for way, options := range relays {
			t.Run(what+"/"+way, func(t *testing.T) {
				cut := make(chan struct{}, 1)
				x := attack(t, options+"\ntimeouts {\nfirst_token 300ms\n}", endless("", piece, cut))
				holds(t, 16<<20, func() {
					r := x.ask()
					if r.code() != "first_token_timeout" && (r.code() != "event_too_large" || what == "comments") {
						t.Errorf("%d %.300q", r.StatusCode, r.body)
					}
					await(t, "the backend is cut off", cut)
				})
			})
		}
	}
}

// CWE-770: a million events of one letter cost no more than their bound, also where
// the client does not read.
func TestManyTinyEvents(t *testing.T) {
	for way, options := range relays {
		t.Run(way, func(t *testing.T) {
			cut := make(chan struct{}, 1)
			x := attack(t, options+"\ntimeouts {\nwrite 1s\n}", func(w http.ResponseWriter, r *http.Request) {
				says()(w, r)
				piece := []byte(strings.Repeat(rig.Chunk("x"), 1000))
				for range 1000 {
					if _, err := w.Write(piece); err != nil {
						break
					}
				}
				cut <- struct{}{}
			})
			holds(t, 24<<20, func() {
				x.dial(head("0"))
				await(t, "the backend has said it, or is cut off", cut)
			})
		})
	}
}

// CWE-770: choices and calls with numbers of their own cost what they say, and not
// what their number says.
func TestSparseNumbers(t *testing.T) {
	for way, options := range relays {
		t.Run(way, func(t *testing.T) {
			var pieces []string
			for _, n := range []string{"1000000000", "9223372036854775807", "-1", "1e300", "0.5", `"1"`, "null", "99999999999999999999"} {
				pieces = append(pieces,
					`data: {"choices":[{"index":`+n+`,"delta":{"content":"a"}}]}`+"\n\n",
					`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":`+n+`,"id":"c`+n+`","function":{"name":"f","arguments":"{}"}}]}}]}`+"\n\n")
			}
			x := attack(t, options+"\ninclude tool_calls", says(append(pieces, rig.Stop)...))
			holds(t, 8<<20, func() {
				r := x.ask()
				list := r.frames(t)
				if len(list) == 0 || !list[len(list)-1].Terminal() {
					t.Errorf("%d %.300q", r.StatusCode, r.body)
				}
				if id := r.Header.Get("X-Response-Id"); way == "resume" {
					checkText(t, "snapshot", x.get("/llm/streams/"+id, "Accept", "application/json").body)
				}
			})
		})
	}
}

// CWE-674: JSON of any depth costs no stack, wherever it stands.
func TestDeepJSON(t *testing.T) {
	deep := strings.Repeat("[", 400_000)
	for what, data := range map[string]string{
		"alone": deep, "closed": deep + strings.Repeat("]", 400_000), "objects": strings.Repeat(`{"a":`, 150_000),
		"in choices": `{"choices":` + deep, "in an error": `{"error":` + deep, "in delta": `{"choices":[{"index":0,"delta":{"content":` + deep,
		"beside": `{"x":` + deep + strings.Repeat("]", 400_000) + `,"choices":[{"index":0,"delta":{"content":"b"}}]}`,
	} {
		t.Run(what, func(t *testing.T) {
			x := attack(t, "", says(rig.Chunk("a"), "data: "+data+"\n\n", rig.Stop))
			r := x.ask()
			list := r.frames(t)
			if len(list) < 2 || !list[len(list)-1].Terminal() {
				t.Errorf("%d %.300q", r.StatusCode, r.body)
			}
			x.ask() // it lives
		})
	}
}

// CWE-158, CWE-176: NUL, lone surrogates and bytes that are no UTF-8 come out as
// valid JSON in valid UTF-8, in every dialect and in everything that a backend can
// name.
func TestBytesThatAreNoText(t *testing.T) {
	for what, bad := range map[string]string{
		"NUL": `\u0000`, "raw NUL": "\x00", "invalid": "\xff\xfe\x80", "overlong": "\xc0\xaf", "cut short": "\xf0\x9f\x98", "surrogate": `\ud83d`,
		"raw surrogate": "\xed\xa0\x80", "separators": "\u2028\u2029\u0085", "controls": "\x01\x1f\x7f", "BOM": "\ufeff", "beyond": "\xf4\x90\x80\x80",
	} {
		for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
			t.Run(what+"/"+dialect, func(t *testing.T) {
				include := ""
				if dialect == "text" {
					include = "\ninclude reasoning tool_calls"
				}
				x := attack(t, "emit "+dialect+include+"\nresume /llm", says(rig.Chunk("a"), // so that the format is known
					`data: {"model":"m`+bad+`","choices":[{"index":0,"delta":{"content":"a`+bad+`b","reasoning_content":"c`+bad+`d"}}]}`+"\n\n",
					`data: {"model":"m`+bad+`","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"i`+bad+`","function":{"name":"n`+bad+`","arguments":"{\"x\":\"`+bad+`\"}"}}]}}]}`+"\n\n",
					`data: {"choices":[{"index":0,"delta":{},"finish_reason":"f`+bad+`"}]}`+"\n\ndata: [DONE]\n\n"))
				r := x.ask()
				id := r.Header.Get("X-Response-Id")
				checkText(t, "stream", r.body)
				checkText(t, "snapshot", x.get("/llm/streams/"+id, "Accept", "application/json").body)
			})
		}
		t.Run(what+"/error", func(t *testing.T) {
			x := attack(t, "", says(rig.Chunk("a"), `data: {"error":{"message":"m`+bad+`","type":"t`+bad+`","code":"c`+bad+`"}}`+"\n\n"))
			r := x.ask()
			checkText(t, "error", r.body)
			if r.code() != "upstream_error" && r.code() != "invalid_upstream" {
				t.Errorf("%.300q", r.body)
			}
		})
	}
}

// checkText checks that every line of a body is text that any reader splits as we
// do, and that data is JSON.
func checkText(t *testing.T, what, body string) {
	t.Helper()
	if !utf8.ValidString(body) || strings.ContainsAny(body, "\x00\r\u2028\u2029\u0085") {
		t.Errorf("%s: %q", what, body)
	}
	for line := range strings.SplitSeq(body, "\n") {
		data, is := strings.CutPrefix(line, "data: ")
		if !is {
			data = "{}"
			if strings.HasPrefix(line, "{") {
				data = line
			}
		}
		if data != "[DONE]" && !json.Valid([]byte(data)) {
			t.Errorf("%s: data is no JSON: %q", what, data)
		}
	}
}

// zipped compresses n MiB of one event.
func zipped(t *testing.T, n int) []byte {
	t.Helper()
	var buf bytes.Buffer
	zw := gzip.NewWriter(&buf)
	_, _ = io.WriteString(zw, rig.Chunk("a")+"data: ")
	filler := bytes.Repeat([]byte("x"), 1<<20)
	for range n {
		_, _ = zw.Write(filler)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

// CWE-409: what a backend has compressed is held no further than max_event, and a
// zstd window no further than every decoder has to support.
func TestCompressedBomb(t *testing.T) {
	for what, body := range map[string]struct{ coding, body string }{
		"gzip": {"gzip", string(zipped(t, bombMiB))}, "x-gzip": {"x-gzip", string(zipped(t, 64))},
		"zstd window": {"zstd", "\x28\xb5\x2f\xfd\x00\xf8" + strings.Repeat("\x00", 1000)},
		"cut gzip":    {"gzip", string(zipped(t, 1)[:600])}, "no gzip": {"gzip", rig.Chunk("a") + rig.Stop}, "nothing": {"gzip", ""},
	} {
		for way, options := range relays {
			t.Run(what+"/"+way, func(t *testing.T) {
				x := attack(t, options, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					rig.EventStream(w)
					w.Header().Set("Content-Encoding", body.coding)
					_, _ = io.WriteString(w, body.body)
				})
				holds(t, 16<<20, func() {
					if r := x.ask(); r.code() == "" && r.cut == nil {
						t.Errorf("%d %.300q", r.StatusCode, r.body)
					}
				})
			})
		}
	}
}

// rawUpstream is a backend that answers with bytes as they are.
func rawUpstream(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(conn, text)
		_ = conn.Close()
	}
}

// CWE-130: a body that is shorter or longer than it said, or whose chunks are not
// what they said, is never a good end where it cut the stream.
func TestWrongLengths(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	word := rig.Chunk("a")
	for what, tc := range map[string]struct{ answer, code string }{
		"too short":       {ok + "Content-Length: 100000\r\n\r\n" + word, "upstream_truncated"},
		"cuts the end":    {ok + "Content-Length: " + strconv.Itoa(len(word)) + "\r\n\r\n" + word + rig.Stop, "upstream_truncated"},
		"chunk cut":       {ok + "Transfer-Encoding: chunked\r\n\r\nffff\r\n" + word, "upstream_truncated"},
		"no last chunk":   {ok + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(word), word), "upstream_truncated"},
		"malformed chunk": {ok + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nzz\r\n", len(word), word), "upstream_truncated"},
		"chunk too large": {ok + fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\nffffffffffffffffff\r\n", len(word), word), "upstream_truncated"},
		"all is well":     {ok + "\r\n" + word + rig.Stop, ""},
	} {
		for way, options := range relays {
			t.Run(what+"/"+way, func(t *testing.T) {
				x := attack(t, options, rawUpstream(tc.answer))
				if r := x.ask(); r.code() != tc.code {
					t.Errorf("code %q, not %q: %.300q", r.code(), tc.code, r.body)
				}
			})
		}
	}
}

// binaryFrame is a frame of an event stream of AWS's.
func binaryFrame(event, payload string) []byte {
	var headers []byte
	for _, h := range [][2]string{{":message-type", "event"}, {":event-type", event}, {":content-type", "application/json"}} {
		headers = append(append(headers, byte(len(h[0]))), h[0]...)
		headers = append(append(headers, 7, 0, byte(len(h[1]))), h[1]...)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(16+len(headers)+len(payload)))
	b = binary.BigEndian.AppendUint32(b, uint32(len(headers)))
	b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
	b = append(append(b, headers...), payload...)
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

// CWE-130: the frames of a binary stream lie about their lengths.
func TestWrongBinaryLengths(t *testing.T) {
	word := binaryFrame("contentBlockDelta", `{"contentBlockIndex":0,"delta":{"text":"a"}}`)
	frame := make([]byte, 12)
	for what, lengths := range map[string][2]uint32{
		"huge": {1<<32 - 1, 0}, "headers beyond": {100, 1<<32 - 1}, "zero": {0, 0}, "too small": {11, 0}, "wrong sum": {100, 10},
	} {
		binary.BigEndian.PutUint32(frame, lengths[0])
		binary.BigEndian.PutUint32(frame[4:], lengths[1])
		t.Run(what, func(t *testing.T) {
			x := attack(t, "", func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body)
				w.Header().Set("Content-Type", "application/vnd.amazon.eventstream")
				_, _ = w.Write(slices.Concat(word, frame, make([]byte, 4<<20)))
			})
			holds(t, 16<<20, func() {
				r := x.do(http.MethodPost, "/model/m/converse-stream", prompt)
				if r.code() != "invalid_upstream" && r.code() != "event_too_large" {
					t.Errorf("%d %.200q", r.StatusCode, r.body)
				}
			})
		})
	}
}

// CWE-345: frames that pretend to be ours are none, and change nothing.
func TestFramesThatPretendToBeOurs(t *testing.T) {
	const id = "0000000000000000000000"
	for what, frame := range map[string]string{
		"done":      "id: " + id + ":1\nevent: done\ndata: {\"finish_reason\":\"stop\"}\n\n",
		"error":     "event: error\ndata: {\"error\":{\"code\":\"draining\"}}\n\n",
		"reconnect": "event: reconnect\nretry: 1\ndata: {\"reason\":\"reload\",\"retry_ms\":1}\n\n",
		"gap":       "event: gap\ndata: {\"dropped\":5}\n\n",
		"started":   "event: started\ndata: {\"response_id\":\"" + id + "\"}\n\n",
		"text":      "id: " + id + ":5\ndata: {\"text\":\"forged\"}\n\n",
		"tool call": "event: tool_call\ndata: {\"index\":0,\"id\":\"x\",\"name\":\"forged\",\"arguments\":\"{}\"}\n\n",
		"ping":      ": ping\n",
	} {
		for way, options := range relays {
			t.Run(what+"/"+way, func(t *testing.T) {
				x := attack(t, options+"\ninclude tool_calls", says(rig.Chunk("a"), frame, rig.Chunk("b"), rig.Stop))
				r := x.ask()
				if strings.Contains(r.body, id) || strings.Contains(r.body, "forged") || strings.Contains(r.body, "retry:") || r.code() == "draining" {
					t.Errorf("%.500q", r.body)
				}
				list := r.frames(t)
				for i, f := range list {
					if f.Index() != i+1 || f.Event == "gap" || f.Event == "started" || f.Event == "reconnect" {
						t.Errorf("frame %d is %+v", i, f)
					}
				}
				if !list[len(list)-1].Terminal() || strings.Count(r.body, "event: done")+strings.Count(r.body, "event: error") != 1 {
					t.Errorf("%.500q", r.body)
				}
			})
		}
	}
}

// CWE-74: a backend's `id:` and `retry:` set no cursor and no pace of a client, in
// any dialect.
func TestInjectedIDsAndRetries(t *testing.T) {
	chunk := func(before string) string { return before + rig.Chunk("a") }
	for _, dialect := range []string{"text", "plain", "openai", "anthropic", "ai-sdk"} {
		x := attack(t, "emit "+dialect+"\nresume /llm", says(chunk("id: evil\n"), chunk("retry: 99999999\n"), chunk("id: 1\rretry: 77\r"),
			chunk("id\nretry\n"), chunk("event: evil\n"), rig.Stop))
		r := x.ask()
		if strings.Contains(r.body, "evil") || strings.Contains(r.body, "retry") || strings.Contains(r.body, "99999999") {
			t.Errorf("%s: %.500q", dialect, r.body)
		}
		if strings.Count(r.body, "a") < 5 {
			t.Errorf("%s: something is missing: %.500q", dialect, r.body)
		}
	}
}

// CWE-113, CWE-345: header fields of a backend do not stand in for ours.
func TestFieldsThatPretendToBeOurs(t *testing.T) {
	x := attack(t, "resume /llm", func(w http.ResponseWriter, r *http.Request) {
		for field, value := range map[string]string{
			"X-Response-Id": "0000000000000000000000", "X-Accel-Buffering": "yes", "Incremental": "?0", "Content-Length": "3",
			"Transfer-Encoding": "identity", "Trailer": "X-Evil", "Cache-Control": "public", "Last-Event-Id": "1", "Retry-After": "99999",
		} {
			w.Header().Set(field, value)
		}
		w.Header().Del("Content-Length")
		answersHello(w, r)
	})
	r := x.ask()
	id := r.Header.Get("X-Response-Id")
	if len(r.Header.Values("X-Response-Id")) != 1 || id == "0000000000000000000000" || r.Header.Get("X-Accel-Buffering") != "no" ||
		r.Header.Get("Incremental") != "?1" || r.Header.Get("Cache-Control") != "no-cache, no-transform" || r.Trailer.Get("X-Evil") != "" {
		t.Errorf("%v", r.Header)
	}
	x.get("/llm/streams/"+id).want(t, "its id", 200, "")
}

// CWE-770: a backend's header, a trailer and early hints without measure end where
// net/http ends them, and are not kept.
func TestHugeUpstreamHeader(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
	field := "X-Big: " + strings.Repeat("x", 500<<10) + "\r\n"
	x := attack(t, "resume /llm", rawUpstream(ok+field+"\r\n"+rig.Chunk("a")+rig.Stop))
	holds(t, 8<<20, func() {
		for range 20 {
			x.ask().want(t, "half a megabyte of header", 200, "")
		}
	})
	hints := strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n", 10_000)
	x = attack(t, "resume /llm", rawUpstream(hints+ok+"\r\n"+rig.Chunk("a")+rig.Stop))
	if r := x.ask(); r.StatusCode != 502 && r.StatusCode != 200 {
		t.Errorf("early hints: %d %.200q", r.StatusCode, r.body)
	}
}

// Fault 4, CWE-770: everything that a response holds counts in max_memory, and what
// names it is held as a hash or cut.
func TestEverythingCountsInMaxMemory(t *testing.T) {
	big := strings.Repeat("n", 64<<10)
	long := strings.Repeat("n", 7000)
	for what, tc := range map[string]struct {
		answer http.HandlerFunc
		header []string
	}{
		"a model":         {says(strings.Replace(rig.Chunk("a"), `"model":"m"`, `"model":"`+big+`"`, 1), rig.Stop), nil},
		"a finish reason": {says(rig.Chunk("a"), strings.Replace(rig.Stop, `"stop"`, `"`+big+`"`, 1)), nil},
		"an error":        {says(rig.Chunk("a"), `data: {"error":{"message":"`+big+`","type":"t"}}`+"\n\n"), nil},
		"a header":        {func(w http.ResponseWriter, r *http.Request) { w.Header().Set("Vary", long); answersHello(w, r) }, nil},
		"a channel":       {answersHello, []string{"X-Chat", long}},
		"an owner":        {answersHello, []string{"X-User", long}},
		"a key":           {answersHello, []string{"Idempotency-Key", long}},
		"nothing":         {answersHello, nil},
	} {
		t.Run(what, func(t *testing.T) {
			x := attackSite(t, "{\n\tllm_stream {\n\t\tmax_memory 1MiB\n\t}\n}\nADDR {\n\tllm_stream {\n"+ownedSite+"\n\t}\n\treverse_proxy BACKEND\n}", tc.answer)
			holds(t, 6<<20, func() {
				for i := range 600 {
					header := []string{"X-User", "u", "X-Chat", strconv.Itoa(i), "Idempotency-Key", strconv.Itoa(i)}
					for j := 0; j < len(tc.header); j += 2 {
						for k := range header {
							if header[k] == tc.header[j] {
								header[k+1] = tc.header[j+1] + strconv.Itoa(i)
							}
						}
					}
					x.ask(header...)
				}
				http.DefaultClient.CloseIdleConnections()
			})
		})
	}
}

// Fault 4, CWE-770: an error object is kept up to 16 KiB, beyond that its type, code
// and the beginning of its message.
func TestHugeUpstreamError(t *testing.T) {
	x := attack(t, "resume /llm", says(rig.Chunk("a"), `data: {"error":{"pad":"`+strings.Repeat("p", 900<<10)+`","message":"no room","type":"overloaded","code":"c1"}}`+"\n\n"))
	r := x.ask()
	if len(r.body) > 64<<10 || r.code() != "upstream_error" || !strings.Contains(r.body, "overloaded") || !strings.Contains(r.body, "no room") {
		t.Errorf("%d bytes: %.300q", len(r.body), r.body)
	}
}

// Fault 4, CWE-404: with the bound full, a client that asks gets the whole answer or an
// error, never an empty one.
func TestFullMemoryTellsWhoAsks(t *testing.T) {
	burst := strings.Repeat(rig.Chunk(strings.Repeat("x", 10<<10)), 30) + rig.Stop
	x := attackSite(t, "{\n\tllm_stream {\n\t\tmax_memory 200KiB\n\t}\n}\nADDR {\n\tllm_stream {\n\t\tresume /llm\n\t}\n\treverse_proxy BACKEND\n}", says(burst))
	for range 20 {
		r := x.ask()
		whole := strings.HasSuffix(r.body, "data: {\"finish_reason\":\"stop\"}\n\n") && strings.Count(r.body, "x") >= 300<<10
		if !whole && r.code() == "" {
			t.Errorf("%d, %d bytes, %v: neither whole nor an error", r.StatusCode, len(r.body), r.cut)
		}
	}
}

// Fault 6, CWE-354: an aborted body or half an event is never a good end, and an end
// is good only when every choice has finished.
func TestCutsAreNoGoodEnds(t *testing.T) {
	const gemini = `[{"candidates":[{"content":{"parts":[{"text":"a"}]},"finishReason":"STOP","index":0}]}`
	finish, _, _ := strings.Cut(rig.Stop, "\n\n")
	choice := func(n int, finish string) string {
		return fmt.Sprintf(`data: {"choices":[{"index":%d,"delta":{"content":"a"},"finish_reason":%s}]}`, n, finish) + "\n\n"
	}
	anthropic := "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"model\":\"m\"}}\n\n" +
		"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n" +
		"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a\"}}\n\n" +
		"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n"
	for what, tc := range map[string]struct {
		path, contentType, prompt, body string
		abort                           bool
	}{
		"Gemini's array without its end":  {"/v1beta/models/m:streamGenerateContent", "application/json", prompt, gemini, false},
		"half an event after the finish":  {chatPath, "text/event-stream", prompt, rig.Chunk("a") + finish + "\n\ndata: {\"cho", false},
		"one of two choices":              {chatPath, "text/event-stream", `{"stream":true,"n":2}`, choice(0, `"stop"`) + choice(1, "null"), false},
		"aborted after the finish":        {chatPath, "text/event-stream", prompt, rig.Chunk("a") + finish + "\n\n", true},
		"aborted after message_delta":     {"/v1/messages", "text/event-stream", prompt, anthropic, true},
		"half a message_stop":             {"/v1/messages", "text/event-stream", prompt, anthropic + "event: message_stop\ndata: {\"ty", false},
		"aborted in a Gemini array":       {"/v1beta/models/m:streamGenerateContent", "application/json", prompt, gemini, true},
		"aborted after Ollama's last":     {"/api/chat", "application/x-ndjson", prompt, `{"model":"m","message":{"role":"assistant","content":"a"},"done":false}` + "\n", true},
		"one of two, and its end is [DON": {chatPath, "text/event-stream", `{"stream":true,"n":2}`, choice(0, `"stop"`) + choice(1, "null") + "data: [DON", false},
	} {
		for way, options := range relays {
			t.Run(what+"/"+way, func(t *testing.T) {
				x := attack(t, options, func(w http.ResponseWriter, r *http.Request) {
					_, _ = io.Copy(io.Discard, r.Body)
					w.Header().Set("Content-Type", tc.contentType)
					rig.Say(w, tc.body)
					if tc.abort {
						panic(http.ErrAbortHandler)
					}
				})
				if r := x.do(http.MethodPost, tc.path, tc.prompt); r.code() != "upstream_truncated" {
					t.Errorf("%d %.400q", r.StatusCode, r.body)
				}
			})
		}
	}
}

// toolCall is a chunk with a piece of the arguments of a call.
func toolCall(n int, id, name, arguments string) string {
	head := ""
	if id != "" {
		head = `"id":"` + id + `","type":"function",`
		name = `"name":"` + name + `",`
	}
	return fmt.Sprintf(`data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":%d,%s"function":{%s"arguments":"%s"}}]}}]}`, n, head, name, arguments) + "\n\n"
}

// Fault 8, CWE-770: no dialect holds a tool call whole, nor more than 4 MiB of blocks
// that lie across one another.
func TestHugeToolCalls(t *testing.T) {
	piece := strings.Repeat("x", 64<<10)
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
		for what, calls := range map[string]int{"one": 1, "interleaved": 2} {
			t.Run(dialect+"/"+what, func(t *testing.T) {
				said := make(chan struct{})
				include := ""
				if dialect == "text" {
					include = "\ninclude tool_calls"
				}
				x := attack(t, "emit "+dialect+include, func(w http.ResponseWriter, r *http.Request) {
					says()(w, r)
					for i := range calls {
						rig.Say(w, toolCall(i, "call_"+strconv.Itoa(i), "f", ""))
					}
					for i := range 600 { // 40 MB
						if _, err := io.WriteString(w, toolCall(i%calls, "", "", piece)); err != nil {
							break
						}
					}
					close(said)
					<-r.Context().Done()
				})
				holds(t, 24<<20, func() {
					resp := x.open(http.MethodPost, chatPath, prompt)
					go func() { _, _ = io.Copy(io.Discard, resp.Body) }()
					await(t, "all is said, or cut off", said)
				})
			})
		}
	}
}

// Fault 10, CWE-354: a client that follows from inside a tool call is given no call that is
// whole and wrong.
func TestFollowingFromInsideAToolCall(t *testing.T) {
	for _, dialect := range []string{"openai", "anthropic", "ai-sdk"} {
		x := attack(t, "emit "+dialect+"\nresume /llm", says(
			toolCall(0, "call_1", "pay", `{\"to\":\"bob\",`), toolCall(0, "", "", `\"amount\":1`), toolCall(0, "", "", `000}`),
			strings.Replace(rig.Stop, `"stop"`, `"tool_calls"`, 1)))
		id := x.ask().Header.Get("X-Response-Id")
		for from := range 4 {
			r := x.get("/llm/streams/" + id + "?last_event_id=" + id + ":" + strconv.Itoa(from))
			inside := strings.Contains(r.body, "000}")
			whole := strings.Contains(r.body, `bob`)
			if dialect == "openai" { // its deltas are as they came: a call without its id is the rest of one
				whole = whole || !strings.Contains(r.body, `"id":"call_1"`)
			}
			if inside && !whole {
				t.Errorf("%s from %d: %.600q", dialect, from, r.body)
			}
		}
	}
}

// cpuTime is what this process has used of the processors.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// Fault 12, CWE-407: what many tool calls cost grows with their number and not with
// its square.
func TestManyToolCalls(t *testing.T) {
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
		t.Run(dialect, func(t *testing.T) {
			include := ""
			if dialect == "text" {
				include = "\ninclude tool_calls"
			}
			cost := func(n int) time.Duration {
				x := attack(t, "emit "+dialect+include, func(w http.ResponseWriter, r *http.Request) {
					says()(w, r)
					for i := range n {
						_, _ = io.WriteString(w, toolCall(i, "call_"+strconv.Itoa(i), "f", "{}"))
					}
					rig.Say(w, rig.Stop)
				})
				best := time.Hour
				for range 3 {
					begin := cpuTime(t)
					x.ask()
					best = min(best, cpuTime(t)-begin)
				}
				return best
			}
			n := map[bool]int{false: 10_000, true: 2500}[rig.Race]
			few, many := cost(n), cost(8*n)
			if t.Logf("%d calls take %v, %d take %v", n, few, 8*n, many); many > 24*few { // 64 times with the square
				t.Errorf("eight times as many calls take %v of CPU instead of %v", many, few)
			}
		})
	}
}

// Fault 14, CWE-190: counts of tokens are added up without an overflow.
func TestHugeTokenCounts(t *testing.T) {
	const most = "9223372036854775807"
	usage := `data: {"choices":[],"usage":{"prompt_tokens":` + most + `,"completion_tokens":` + most + `,"total_tokens":1}}` + "\n\n"
	done := "data: [DONE]\n\n"
	for _, dialect := range []string{"text", "openai", "anthropic", "ai-sdk"} {
		x := attack(t, "emit "+dialect, says(rig.Chunk("a"), strings.TrimSuffix(rig.Stop, done), usage, done))
		r := x.do(http.MethodPost, chatPath, `{"stream":true,"stream_options":{"include_usage":true}}`)
		if strings.Contains(r.body, ":-") {
			t.Errorf("%s: a negative count: %.600q", dialect, r.body)
		}
		checkText(t, dialect, r.body)
	}
}
