// Package cli has the commands that stand under `caddy llm-stream`: tail, top and
// bench. They are clients of a server that runs elsewhere, and share nothing with
// one in the same process.
//
// Invariant: what a command prints to its standard output is what was asked for,
// the text of a response or a table; what it says about its own work goes to
// standard error, and control sequences go to terminals alone.
package cli

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/term"
)

// Terminal is where a command reads and writes.
type Terminal struct {
	In       *os.File
	Out, Err io.Writer
	Live     bool // Out shows control sequences
}

// Standard returns the Terminal of this process.
func Standard() *Terminal {
	return &Terminal{In: os.Stdin, Out: os.Stdout, Err: os.Stderr, Live: term.IsTerminal(int(os.Stdout.Fd()))}
}

// parseHeader returns the header of "Name: value" lines, as curl takes them.
func parseHeader(lines []string) (http.Header, error) {
	h := make(http.Header)
	for _, line := range lines {
		name, value, found := strings.Cut(line, ":")
		if !found || strings.TrimSpace(name) == "" {
			return nil, fmt.Errorf("header %q is not of the form Name: value", line)
		}
		h.Add(strings.TrimSpace(name), strings.TrimSpace(value))
	}
	return h, nil
}

// refusal returns the error of an answer that is no stream, with what the server
// says of it.
func refusal(resp *http.Response) error {
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4<<10))
	return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(body)))
}

// seconds prints a time in seconds, with what digits mean something.
func seconds(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.2f ms", float64(d)/float64(time.Millisecond))
	case d < time.Second:
		return fmt.Sprintf("%.0f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%.2f s", d.Seconds())
	}
}
