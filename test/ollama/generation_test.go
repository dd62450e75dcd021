//go:build ollama

package ollama_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// soon is within what time Ollama learns that a client has left. It takes some
// milliseconds where nothing else computes.
const soon = 5 * time.Second

// watch tells what Ollama does from now on.
type watch struct {
	after int // where the log was
}

func watchOllama() watch { return watch{ollama.log.size()} }

// generations is how many generations have begun.
func (w watch) generations() int {
	return bytes.Count(ollama.log.bytes()[w.after:], []byte(`msg="completion request"`))
}

// begins waits until a generation has begun.
func (w watch) begins(t *testing.T) {
	t.Helper()
	w.logs(t, patience, `msg="completion request"`)
}

// ends waits until Ollama has done with a request, as it soon has to.
func (w watch) ends(t *testing.T, path string) {
	t.Helper()
	w.logs(t, soon, `\[GIN\].* POST +"`+path+`"`)
}

func (w watch) logs(t *testing.T, limit time.Duration, pattern string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	if _, err := ollama.log.await(ctx, w.after, regexp.MustCompile(pattern)); err != nil {
		t.Fatal(err)
	}
}

// idle waits until a runner does nothing.
func idle(t *testing.T, runner int, limit time.Duration) {
	t.Helper()
	const pause = 250 * time.Millisecond // a runner that generates needs all of it
	for deadline := time.Now().Add(limit); ; {
		before := processorTime(t, runner)
		time.Sleep(pause)
		if used := processorTime(t, runner) - before; used < pause/10 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the runner still computes after %v", limit)
		}
	}
}

// busy waits until a runner computes.
func busy(t *testing.T, runner int) {
	t.Helper()
	begin := processorTime(t, runner)
	for deadline := time.Now().Add(patience); processorTime(t, runner)-begin < 50*time.Millisecond; {
		if time.Now().After(deadline) {
			t.Fatal("the runner does not compute")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// processorTime is the time that a process has computed, in steps of 10 ms.
func processorTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	// proc_pid_stat(5): after the name, which ends with a bracket, utime and stime
	// are the 12th and 13th field, in ticks of which Linux has 100 a second.
	_, rest, _ := strings.Cut(string(stat), ") ")
	fields := strings.Fields(rest)
	ticks := 0
	for _, field := range fields[11:13] {
		n, err := strconv.Atoi(field)
		if err != nil {
			t.Fatal(err)
		}
		ticks += n
	}
	return time.Duration(ticks) * 10 * time.Millisecond
}

// pause stops a runner, as a machine does that swaps, and returns what lets it
// go on.
func pause(t *testing.T, runner int) (resume func()) {
	t.Helper()
	if err := syscall.Kill(runner, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	resume = func() { _ = syscall.Kill(runner, syscall.SIGCONT) }
	t.Cleanup(resume)
	return resume
}
