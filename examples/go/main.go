// Command go asks a question, prints the answer as it comes, and goes on after
// a cut.
//
//	go run . http://localhost:8080 "How does a token stream survive a reload?"
//
// It uses the standard library alone, and needs before the backend a route with
// llm_stream that emits text and has resume.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"time"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: go run . <base URL> <question>")
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	finish, err := ask(ctx, os.Args[1]+"/v1/chat/completions", os.Args[2], os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "\n[%s]\n", finish)
}

// errRefused is wrapped by errors after which there is no other try.
var errRefused = errors.New("refused")

// ask writes the text of an answer to w and returns how it has ended. A
// connection that is cut is followed by another.
func ask(ctx context.Context, url, question string, w io.Writer) (finish string, err error) {
	body, err := json.Marshal(map[string]any{
		"model": "sim", "stream": true,
		"messages": []map[string]string{{"role": "user", "content": question}},
	})
	if err != nil {
		return "", err
	}
	// A request that was cut before it had an id finds its generation again.
	a := answer{url: url, body: body, key: rand.Text(), w: w}
	for failures := 0; ; failures++ {
		jitter := 0.5 + mathrand.Float64() //nolint:gosec // so that clients do not all come at once
		a.wait, a.moved = time.Duration(float64(time.Second<<failures)*jitter), false
		err := a.read(ctx)
		if a.finish != "" || errors.Is(err, errRefused) || ctx.Err() != nil || failures == 8 {
			return a.finish, err
		}
		if a.moved {
			failures = 0
		}
		select {
		case <-time.After(a.wait):
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}
}

// answer is a response, over all its connections.
type answer struct {
	url, key string
	body     []byte
	w        io.Writer

	lastEventID string
	finish      string        // set once it has ended well
	moved       bool          // whether something came on this connection
	wait        time.Duration // until the next one
}

// read reads what comes on one connection.
func (a *answer) read(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.url, bytes.NewReader(a.body))
	if err != nil {
		return errors.Join(errRefused, err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Idempotency-Key", a.key)
	if a.lastEventID != "" {
		req.Header.Set("Last-Event-ID", a.lastEventID)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	switch resp.StatusCode {
	case http.StatusOK:
		return a.readFrames(resp.Body)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		if s, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
			a.wait = time.Duration(s) * time.Second
		}
		return errors.New(resp.Status)
	default:
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return fmt.Errorf("%w: %s: %s", errRefused, resp.Status, text)
	}
}

// frame is a server-sent event of ours: each field is one line.
type frame struct{ id, event, data string }

func (a *answer) readFrames(body io.Reader) error {
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	var f frame
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "id":
			f.id = value
		case "event":
			f.event = value
		case "data":
			f.data = value
		}
		if lines.Text() != "" || f.data == "" {
			continue
		}
		if err := a.take(f); err != nil || a.finish != "" {
			return err
		}
		f = frame{}
	}
	return lines.Err() // nil too is a cut: done has not come
}

func (a *answer) take(f frame) error {
	var data struct {
		Text         string                   `json:"text"`
		FinishReason string                   `json:"finish_reason"`
		RetryMS      int                      `json:"retry_ms"`
		Error        struct{ Message string } `json:"error"`
	}
	if err := json.Unmarshal([]byte(f.data), &data); err != nil {
		return fmt.Errorf("%w: %s", errRefused, f.data)
	}
	if f.id != "" {
		a.lastEventID = f.id
	}
	switch f.event {
	case "":
		a.moved = true
		_, err := io.WriteString(a.w, data.Text)
		return err
	case "done":
		a.finish = data.FinishReason
	case "error":
		return fmt.Errorf("%w: %s", errRefused, data.Error.Message)
	case "reconnect":
		a.wait, a.moved = time.Duration(data.RetryMS)*time.Millisecond, true
	}
	return nil
}
