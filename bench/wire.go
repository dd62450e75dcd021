//go:build linux

package main

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A token's text is a mark, "[0000017@000012345678]": its number in the stream
// and when it was sent, in microseconds after an instant that the processes of
// one run share. No character of it is escaped in JSON.
const (
	markNumber = 7
	markTime   = 12
	markLen    = 1 + markNumber + 1 + markTime + 1
	markSign   = 1 + markNumber // where the @ is
)

// putMark writes the mark of token number at dst, which has room for it.
func putMark(dst []byte, number int, sent int64) {
	dst[0], dst[markSign], dst[markLen-1] = '[', '@', ']'
	putDigits(dst[1:markSign], int64(number))
	putDigits(dst[markSign+1:markLen-1], sent)
}

func putDigits(dst []byte, n int64) {
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = byte('0' + n%10)
		n /= 10
	}
}

// digits returns the number that b is, or false where it has another character.
func digits(b []byte) (n int64, ok bool) {
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, true
}

// maxHead bounds a response's head and a line of its framing, in bytes.
const maxHead = 64 << 10

// reader finds the marks in one HTTP/1.1 response, wherever it is cut. Between
// two reads it holds what is not yet whole of a head, a chunk's size or a mark.
type reader struct {
	id    string // X-Response-Id, once the head was read
	head  bool   // was read
	ended bool   // the body came to its proper end

	left  int    // bytes of the chunk that are still to come, with its line end
	rest  []byte // framing that is not whole
	carry []byte // text that may begin a mark
}

// read takes in the next bytes of the response and calls token for each mark.
// scratch is memory to work in, which it returns.
func (r *reader) read(p, scratch []byte, token func(number int, sent int64)) ([]byte, error) {
	if len(r.rest) > 0 {
		r.rest = append(r.rest, p...)
		p = r.rest
	}
	text := append(scratch[:0], r.carry...)
	var err error
	if !r.head {
		p, err = r.readHead(p)
	}
	for r.head && err == nil && len(p) > 0 {
		if r.ended {
			err = errors.New("bytes after the end of the response")
			break
		}
		if r.left == 0 {
			var size int
			if size, p, err = r.readSize(p); err != nil || size == 0 {
				break
			}
			r.left = size + len("\r\n")
		}
		n := min(r.left, len(p))
		text = append(text, p[:max(0, min(n, r.left-len("\r\n")))]...)
		r.left -= n
		p = p[n:]
	}
	r.rest = append(r.rest[:0], p...)
	r.carry = append(r.carry[:0], scan(text, token)...)
	return text, err
}

// readHead returns what follows the head, or all of p where it is not whole.
func (r *reader) readHead(p []byte) ([]byte, error) {
	head, body, whole := bytes.Cut(p, []byte("\r\n\r\n"))
	if !whole {
		if len(p) > maxHead {
			return p, errors.New("endless head")
		}
		return p, nil
	}
	lines := strings.Split(string(head), "\r\n")
	if !strings.HasPrefix(lines[0], "HTTP/1.1 200 ") {
		return p, fmt.Errorf("answered %q", lines[0])
	}
	chunked := false
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		switch strings.ToLower(name) {
		case "transfer-encoding":
			chunked = value == "chunked"
		case "x-response-id":
			r.id = value
		}
	}
	if !chunked {
		return p, errors.New("a response that is not chunked")
	}
	r.head = true
	return body, nil
}

// readSize returns a chunk's size and what follows it: 0 and all of p where the
// line is not whole, 0 and nothing after the last chunk.
func (r *reader) readSize(p []byte) (int, []byte, error) {
	line, data, whole := bytes.Cut(p, []byte("\r\n"))
	if !whole {
		if len(p) > maxHead {
			return 0, p, errors.New("endless chunk size")
		}
		return 0, p, nil
	}
	size, err := strconv.ParseUint(string(line), 16, 31)
	if err != nil {
		return 0, p, fmt.Errorf("chunk size: %w", err)
	}
	if size > 0 {
		return int(size), data, nil
	}
	trailer := p[len(line):]
	end := bytes.Index(trailer, []byte("\r\n\r\n"))
	if end < 0 {
		if len(p) > maxHead {
			return 0, p, errors.New("endless trailer")
		}
		return 0, p, nil
	}
	r.ended = true
	if len(trailer) > end+len("\r\n\r\n") {
		return 0, nil, errors.New("bytes after the end of the response")
	}
	return 0, nil, nil
}

// scan calls token for each mark in text and returns its end that may begin one.
func scan(text []byte, token func(number int, sent int64)) []byte {
	for {
		i := bytes.IndexByte(text, '@')
		if i < 0 {
			return text[max(0, len(text)-markSign):]
		}
		if i+markLen-markSign > len(text) {
			return text[max(0, i-markSign):]
		}
		if i >= markSign {
			mark := text[i-markSign : i-markSign+markLen]
			number, ok1 := digits(mark[1:markSign])
			sent, ok2 := digits(mark[markSign+1 : markLen-1])
			if ok1 && ok2 && mark[0] == '[' && mark[markLen-1] == ']' {
				token(int(number), sent)
			}
		}
		text = text[i+1:]
	}
}

// checker finds what is wrong with the order of one stream's tokens, which are
// numbered from 0.
type checker struct {
	next    int
	missing map[int]struct{} // tokens before next that have not come
	faults
}

// faults counts what went wrong.
type faults struct {
	lost, repeated, disordered, failed int
}

func (f *faults) add(g faults) {
	f.lost += g.lost
	f.repeated += g.repeated
	f.disordered += g.disordered
	f.failed += g.failed
}

func (f *faults) none() bool { return *f == faults{} }

// token takes in the next token.
func (c *checker) token(number int) {
	if number == c.next {
		c.next++
		return
	}
	if number < c.next {
		if _, late := c.missing[number]; late {
			delete(c.missing, number)
			c.disordered++
		} else {
			c.repeated++
		}
		return
	}
	if c.missing == nil {
		c.missing = make(map[int]struct{})
	}
	for ; c.next < number; c.next++ {
		c.missing[c.next] = struct{}{}
	}
	c.next++
}

// end returns the faults of a stream that should have had so many tokens. One
// too many counts as repeated.
func (c *checker) end(tokens int) faults {
	f := c.faults
	f.lost += len(c.missing) + max(0, tokens-c.next)
	f.repeated += max(0, c.next-tokens)
	return f
}

// clock tells the time in the microseconds of a mark.
type clock struct{ begin time.Time }

// clockSince returns the clock that began at so many nanoseconds of Unix time.
func clockSince(nanoseconds int64) clock { return clock{time.Unix(0, nanoseconds)} }

// now reads the wall clock: another process wrote the mark.
func (c clock) now() int64 {
	return (time.Now().UnixNano() - c.begin.UnixNano()) / int64(time.Microsecond)
}
