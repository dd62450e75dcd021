//go:build linux

package main

import (
	"fmt"
	"reflect"
	"testing"
)

// answer is a response of one chunk for each token.
func answer(numbers ...int) []byte {
	b := []byte("HTTP/1.1 200 OK\r\nX-Response-Id: abc\r\nTransfer-Encoding: chunked\r\n\r\n")
	for _, n := range numbers {
		mark := make([]byte, markLen)
		putMark(mark, n, int64(n)*10)
		event := fmt.Sprintf("data: {\"text\":\"a@b[%s]\"}\n\n", mark)
		b = fmt.Appendf(b, "%x\r\n%s\r\n", len(event), event)
	}
	return append(b, "0\r\n\r\n"...)
}

// readPieces returns the numbers that a reader finds in b, given in pieces.
func readPieces(t *testing.T, r *reader, b []byte, size int) []int {
	t.Helper()
	var scratch []byte
	var numbers []int
	for len(b) > 0 {
		n := min(size, len(b))
		var err error
		scratch, err = r.read(b[:n], scratch, func(number int, sent int64) {
			if sent != int64(number)*10 {
				t.Errorf("token %d: sent at %d", number, sent)
			}
			numbers = append(numbers, number)
		})
		if err != nil {
			t.Fatalf("pieces of %d: %v", size, err)
		}
		b = b[n:]
	}
	return numbers
}

func TestReaderCutAnywhere(t *testing.T) {
	want := []int{0, 1, 2, 1234567}
	response := answer(want...)
	for size := 1; size <= len(response); size++ {
		var r reader
		if got := readPieces(t, &r, response, size); !reflect.DeepEqual(got, want) {
			t.Errorf("pieces of %d: tokens %v, want %v", size, got, want)
		}
		if !r.ended || r.id != "abc" {
			t.Errorf("pieces of %d: ended %t, id %q", size, r.ended, r.id)
		}
	}
}

// A proxy may put one event into two chunks.
func TestReaderMarkInTwoChunks(t *testing.T) {
	mark := make([]byte, markLen)
	putMark(mark, 7, 70)
	for cut := 1; cut < markLen; cut++ {
		var r reader
		b := []byte("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
		b = fmt.Appendf(b, "%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n", cut, mark[:cut], markLen-cut, mark[cut:])
		if got := readPieces(t, &r, b, len(b)); !reflect.DeepEqual(got, []int{7}) || !r.ended {
			t.Errorf("cut at %d: tokens %v, ended %t", cut, got, r.ended)
		}
	}
}

func TestReaderRefuses(t *testing.T) {
	for _, response := range []string{
		"HTTP/1.1 503 Service Unavailable\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabc",
		string(answer(1)) + "x",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
	} {
		var r reader
		if _, err := r.read([]byte(response), nil, func(int, int64) {}); err == nil {
			t.Errorf("%q is no error", response)
		}
	}
}

func TestChecker(t *testing.T) {
	for _, test := range []struct {
		name   string
		tokens []int
		want   faults
	}{
		{"whole", []int{0, 1, 2, 3}, faults{}},
		{"nothing", nil, faults{lost: 4}},
		{"lost", []int{0, 3}, faults{lost: 2}},
		{"lost at the end", []int{0, 1, 2}, faults{lost: 1}},
		{"repeated", []int{0, 1, 1, 2, 3, 0}, faults{repeated: 2}},
		{"disordered", []int{0, 2, 1, 3}, faults{disordered: 1}},
		{"late twice", []int{0, 2, 1, 1, 3}, faults{disordered: 1, repeated: 1}},
		{"one too many", []int{0, 1, 2, 3, 4}, faults{repeated: 1}},
	} {
		var c checker
		for _, number := range test.tokens {
			c.token(number)
		}
		if got := c.end(4); got != test.want {
			t.Errorf("%s: %+v, want %+v", test.name, got, test.want)
		}
	}
}

func FuzzReader(f *testing.F) {
	f.Add(answer(0, 1, 2), 3)
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n"), 1)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		whole, wholeErr := tokensOf(b, len(b)+1)
		cut, cutErr := tokensOf(b, max(1, size))
		if wholeErr == nil && (cutErr != nil || !reflect.DeepEqual(whole, cut)) {
			t.Errorf("cut: %v, %v; whole: %v", cut, cutErr, whole)
		}
	})
}

func tokensOf(b []byte, size int) (tokens []int, err error) {
	var r reader
	var scratch []byte
	for len(b) > 0 && err == nil {
		n := min(size, len(b))
		scratch, err = r.read(b[:n], scratch, func(number int, _ int64) { tokens = append(tokens, number) })
		b = b[n:]
	}
	return tokens, err
}
