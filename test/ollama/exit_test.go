//go:build ollama

package ollama_test

import (
	"io"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/test/ollama/tinymodel"
)

// exits checks that a Caddy ends in good order, soon.
func exits(t *testing.T, p *rig.Process, limit time.Duration) {
	t.Helper()
	code, _, err := p.Exited(limit)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "exit code", code, 0)
}

// A Caddy that is told to end lets its streams come to theirs.
func TestExitWaits(t *testing.T) {
	want := answerTo(t, long())
	for name, options := range map[string]string{"attached": everything, "resumable": kept} {
		t.Run(name, func(t *testing.T) {
			p := rig.StartProcess(t, site(options))
			warm(t, slow)
			b := begin(t, p.Addr)
			p.Signal(syscall.SIGTERM)
			b.finish(t, want)
			exits(t, p, 5*time.Second)
		})
	}
}

// What does not come to its end before the deadline is told so, and Ollama
// stops.
func TestExitDeadline(t *testing.T) {
	p := rig.StartProcess(t, site(everything+"\ndrain {\ndeadline 1s\nspread 100ms\n}"))
	runner := warm(t, slow)
	e := endpoints[0]
	fr := rig.NewFrameReader(ask(t, p.Addr, e, question{model: slow, prompt: tinymodel.AskLoop}).Body)
	a := new(rig.Answer)
	if err := a.Add(frame(t, fr)); err != nil {
		t.Fatal(err)
	}
	w := watchOllama()
	begin := p.Signal(syscall.SIGTERM)
	follow(t, fr, a)
	if a.Error == nil {
		t.Fatalf("it is done: %+v", a.Done)
	}
	equal(t, "code", a.Error.Code, "draining")
	if took := time.Since(begin); took < 900*time.Millisecond || took > 2*time.Second {
		t.Errorf("after %v", took)
	}
	if _, err := fr.Next(); err == nil || !strings.Contains(err.Error(), io.ErrUnexpectedEOF.Error()) {
		t.Errorf("the connection ends with %v", err)
	}
	w.ends(t, e.path)
	idle(t, runner, soon)
	exits(t, p, 3*time.Second)
}
