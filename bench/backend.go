//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	backendHead = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n" +
		"Transfer-Encoding: chunked\r\n\r\n"

	chunkBegin = `data: {"id":"chatcmpl-D3v0Z9qXw7mKb2RtYc5LsHnE1aUfG","object":"chat.completion.chunk",` +
		`"created":1790000000,"model":"sim-1-2026-10-01","service_tier":"default",` +
		`"system_fingerprint":"fp_5d1c8e07aa","choices":[{"index":0,"delta":`
	chunkEnd = `,"logprobs":null,"finish_reason":null}],"usage":null}` + "\n\n"
)

// backend simulates an LLM behind OpenAI's chat completions, on HTTP/1.1. Every
// token is an event of 320 bytes in a chunk of its own. With an interval, one
// goroutine writes the tokens of all streams, so that ten thousand of them cost
// the machine little.
type backend struct {
	clock    clock
	interval time.Duration // between two tokens of a stream; 0 is without pause
	token    []byte        // one chunk, its mark blank
	mark     int           // where the mark is in it

	mu    sync.Mutex
	queue []*generation // in the order in which their next token is due
	wake  chan struct{} // has room for one: the queue is no longer empty
}

// generation is one stream. Only the pacer touches it until done is closed.
type generation struct {
	conn    syscall.RawConn
	tokens  int
	sent    int
	due     time.Time
	pending []byte // what the connection did not take
	err     error
	done    chan struct{}
}

func newBackend(c clock, interval time.Duration, pad int) *backend {
	event := chunkBegin + `{"content":"` + strings.Repeat(" ", markLen+pad) + `"}` + chunkEnd
	token := fmt.Appendf(nil, "%x\r\n%s\r\n", len(event), event)
	return &backend{
		clock: c, interval: interval, token: token,
		mark: bytes.Index(token, []byte(`"content":"`)) + len(`"content":"`),
		wake: make(chan struct{}, 1),
	}
}

// backendMain serves until the process is ended, and all goroutines with it.
func backendMain(args []string) error {
	flags := flag.NewFlagSet("backend", flag.ContinueOnError)
	listen := flags.String("listen", "127.0.0.1:0", "`address` to listen on")
	begin := flags.Int64("begin", 0, "the instant from which marks count, in `nanoseconds` of Unix time")
	interval := flags.Duration("interval", 0, "between two tokens")
	pad := flags.Int("pad", 0, "`bytes` of text after the mark")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", *listen)
	if err != nil {
		return err
	}
	b := newBackend(clockSince(*begin), *interval, *pad)
	go b.pace()
	for {
		conn, err := ln.Accept()
		if err != nil {
			return err
		}
		go b.serve(conn)
	}
}

// serve answers the requests of one connection.
func (b *backend) serve(conn net.Conn) {
	defer conn.Close()
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return
	}
	in := bufio.NewReaderSize(conn, 1<<10)
	for {
		tokens, err := readRequest(in)
		if err != nil {
			return
		}
		head := []byte(backendHead)
		role := chunkBegin + `{"role":"assistant","content":"","refusal":null}` + chunkEnd
		head = fmt.Appendf(head, "%x\r\n%s\r\n", len(role), role)
		if b.interval == 0 {
			err = b.flood(conn, head, tokens)
		} else {
			g := &generation{
				conn: raw, tokens: tokens, pending: head, due: time.Now(), done: make(chan struct{}),
			}
			b.step(g)
			b.push(g)
			<-g.done
			err = g.err
		}
		if err != nil {
			return
		}
	}
}

// readRequest returns how many tokens the next request asks for.
func readRequest(in *bufio.Reader) (int, error) {
	req, err := http.ReadRequest(in)
	if err != nil {
		return 0, err
	}
	defer req.Body.Close()
	var body struct {
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(req.Body).Decode(&body); err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, req.Body)
	return body.MaxTokens, err
}

// appendToken appends token number, sent now.
func (b *backend) appendToken(dst []byte, number int) []byte {
	dst = append(dst, b.token...)
	putMark(dst[len(dst)-len(b.token)+b.mark:], number, b.clock.now())
	return dst
}

// appendEnd appends how a response of so many tokens ends.
func appendEnd(dst []byte, tokens int) []byte {
	event := strings.Replace(chunkBegin+`{}`+chunkEnd, `"finish_reason":null`, `"finish_reason":"stop"`, 1)
	event = strings.Replace(event, `"usage":null`,
		`"usage":{"prompt_tokens":150,"completion_tokens":`+strconv.Itoa(tokens)+`}`, 1)
	event += "data: [DONE]\n\n"
	return fmt.Appendf(dst, "%x\r\n%s\r\n0\r\n\r\n", len(event), event)
}

// flood writes a response without pause, one write for each token.
func (b *backend) flood(conn net.Conn, buf []byte, tokens int) error {
	for i := range tokens {
		if _, err := conn.Write(b.appendToken(buf, i)); err != nil {
			return err
		}
		buf = buf[:0]
	}
	_, err := conn.Write(appendEnd(buf, tokens))
	return err
}

func (b *backend) push(g *generation) {
	b.mu.Lock()
	b.queue = append(b.queue, g)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

// pace writes tokens as they become due. All streams have the same interval, so
// that who was served last is due last.
func (b *backend) pace() {
	for {
		b.mu.Lock()
		if len(b.queue) == 0 {
			b.mu.Unlock()
			<-b.wake
			continue
		}
		g := b.queue[0]
		b.queue = b.queue[1:]
		b.mu.Unlock()

		g.due = g.due.Add(b.interval)
		if ahead := time.Until(g.due); ahead > 0 {
			time.Sleep(ahead)
		}
		b.step(g)
		if g.err != nil || g.sent > g.tokens && len(g.pending) == 0 {
			close(g.done)
			continue
		}
		b.mu.Lock()
		b.queue = append(b.queue, g)
		b.mu.Unlock()
	}
}

// step writes the next token, or the end of the response. A client that does not
// read holds up its own stream and no other.
func (b *backend) step(g *generation) {
	if g.sent == 0 || len(g.pending) == 0 {
		if g.sent < g.tokens {
			g.pending = b.appendToken(g.pending, g.sent)
		} else {
			g.pending = appendEnd(g.pending, g.tokens)
		}
		g.sent++
	}
	err := g.conn.Write(func(fd uintptr) bool {
		n, err := syscall.Write(int(fd), g.pending)
		if n > 0 {
			g.pending = g.pending[n:]
		}
		if err != nil && !errors.Is(err, syscall.EAGAIN) {
			g.err = err
		}
		return true
	})
	if err != nil {
		g.err = err
	}
	if len(g.pending) == 0 {
		g.pending = nil
	}
}
