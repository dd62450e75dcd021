package sdk_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

// drainingRoutes is a Caddyfile with a route for each dialect, whose streams
// have a second when the process goes down. Heartbeats, which come while slow
// SDKs still start, would cost go-openai the error's message.
func drainingRoutes(backend string) string {
	var b strings.Builder
	b.WriteString("ADDR {\n")
	for _, dialect := range []string{"openai", "anthropic", "ai-sdk", "passthrough"} {
		fmt.Fprintf(&b, `	handle_path /%s/* {
		llm_stream {
			emit %s
			heartbeat off
			drain {
				deadline 1s
			}
		}
		reverse_proxy %s
	}
`, dialect, dialect, backend)
	}
	b.WriteString("}\n")
	return b.String()
}

// endless is a response that stops in the middle, for as long as the client
// waits.
var endless = llmsim.Options{Tokens: tokens, Fault: llmsim.FaultHang, FaultAt: partial}

// reading is an SDK in the middle of its responses.
type reading struct {
	client
	runs     []run
	answers  []*answer
	outcomes map[string]outcome
	err      error
}

// A process that goes down in the middle of a response is an exception of every
// SDK, and for none of them a whole response.
func TestExitIsNoGoodEnd(t *testing.T) {
	needNode(t)
	backend := new(answers)
	caddy := rig.StartProcess(t, drainingRoutes(rig.NewBackend(t, backend.ServeHTTP).Addr))
	var readers []*reading
	var running sync.WaitGroup
	defer running.Wait()
	for _, c := range clients(t) {
		r := &reading{client: c}
		for _, way := range c.eachWay() {
			a := backend.add(simulated(c.from[0], endless))
			r.answers = append(r.answers, a)
			r.runs = append(r.runs, run{Name: "run " + way, Way: way, URL: "http://" + caddy.Addr + "/" + c.dialect + "/" + a.key})
		}
		readers = append(readers, r)
		running.Go(func() { r.outcomes, r.err = r.ask(t.Context(), r.runs) })
	}
	for _, r := range readers {
		r.awaitCalls(t)
	}
	caddy.Signal(syscall.SIGTERM)
	running.Wait()
	for _, r := range readers {
		t.Run(r.name+"/"+r.dialect, r.check)
	}
	if code, _, err := caddy.Exited(20 * time.Second); err != nil || code != 0 {
		t.Errorf("exit code %d, %v", code, err)
	}
}

// awaitCalls waits until every request has come to the backend.
func (r *reading) awaitCalls(t *testing.T) {
	t.Helper()
	deadline := time.After(time.Minute)
	for _, a := range r.answers {
		for a.calls.Load() == 0 {
			select {
			case <-deadline:
				t.Fatal(r.name + " does not ask")
			case <-time.After(time.Millisecond):
			}
		}
	}
}

func (r *reading) check(t *testing.T) {
	if r.err != nil {
		t.Fatal(r.err)
	}
	for _, got := range r.outcomes {
		checkFailed(t, &got)
		equal(t, "text", got.Text, llmsim.Text(partial))
		if r.dialect == "passthrough" {
			continue // each has its own words for an aborted connection
		}
		equal(t, "class of the error", got.Error.Class, r.streamError)
		if r.codes {
			equal(t, "code of the error", got.Error.Code, "draining")
		}
	}
}
