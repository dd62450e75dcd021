package e2e_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

func init() { caddy.RegisterModule(new(tightListener)) }

// tightListener makes the sockets of a server take little, so that a client that
// does not read is stuck soon. Else the system keeps megabytes for each.
type tightListener struct{}

// CaddyModule returns the Caddy module information.
func (*tightListener) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "caddy.listeners.llmstream_tight", New: func() caddy.Module { return new(tightListener) }}
}

// UnmarshalCaddyfile takes no arguments.
func (*tightListener) UnmarshalCaddyfile(d *caddyfile.Dispenser) error {
	d.Next()
	return nil
}

// WrapListener implements caddy.ListenerWrapper.
func (*tightListener) WrapListener(ln net.Listener) net.Listener { return tight{ln} }

type tight struct{ net.Listener }

func (l tight) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetWriteBuffer(smallBuffer / 2)
	}
	return conn, err
}

// A multitude is many followers of one response, each on a connection of its
// own. The race detector takes no more than 8,128 goroutines.
const (
	multitude     = 2000
	multitudeRace = 600
)

// speech is a backend that says first much, then little at a time, in deltas
// that are numbered.
type speech struct {
	much, little, end chan struct{} // the test lets it go on
	said              [muchEvents + littleEvents]atomic.Int64
}

const (
	muchEvents   = 400
	muchSize     = 4000
	littleEvents = 60
	littleSize   = 40
	littlePace   = 50 * time.Millisecond
)

func (s *speech) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	rig.EventStream(w)
	for i := range s.said {
		switch {
		case i == 1:
			s.await(r, s.much)
		case i == muchEvents:
			s.await(r, s.little)
		case i > muchEvents:
			time.Sleep(littlePace)
		}
		s.said[i].Store(time.Now().UnixNano())
		rig.Say(w, rig.Chunk(s.text(i)))
	}
	s.await(r, s.end)
	rig.Say(w, rig.Stop)
}

// await waits for the test.
func (s *speech) await(r *http.Request, c <-chan struct{}) {
	select {
	case <-c:
	case <-r.Context().Done():
		panic(http.ErrAbortHandler)
	}
}

func (s *speech) text(i int) string {
	if i < muchEvents {
		return fmt.Sprintf("%0*d", muchSize, i)
	}
	return fmt.Sprintf("%0*d", littleSize, i)
}

// hears reads all deltas after the first ones, checks that they come in their
// order, and returns how late each frame was: there may be fewer, which stand
// for several.
func (s *speech) hears(fr *rig.FrameReader, after int) (late []time.Duration, err error) {
	for next := after; next < len(s.said); {
		f, err := fr.Next()
		if err != nil {
			return late, fmt.Errorf("after %d deltas: %w", next, err)
		}
		text, ok := strings.CutPrefix(f.Data, `{"text":"`)
		text, whole := strings.CutSuffix(text, `"}`)
		for ; ok && whole && text != ""; next++ {
			text, ok = strings.CutPrefix(text, s.text(next))
		}
		if !ok || !whole || f.Index() != next {
			return late, fmt.Errorf("%.80v after %d deltas", f, next)
		}
		late = append(late, time.Duration(time.Now().UnixNano()-s.said[next-1].Load()))
	}
	return late, nil
}

// Many follow one response, and a tenth of them is stuck: the others have every
// byte in order, and what the stuck ones miss takes no memory (mercure#1382).
func TestMultitude(t *testing.T) {
	n := multitude
	if rig.Race {
		n = multitudeRace
	}
	s := &speech{much: make(chan struct{}), little: make(chan struct{}), end: make(chan struct{})}
	backend := rig.NewBackend(t, s.ServeHTTP)
	c := rig.Start(t, `{
		servers {
			listener_wrappers {
				llmstream_tight
			}
		}
	}
	ADDR {
		llm_stream {
			timeouts {
				write off
			}
			resume /llm {
				max_size 64MiB
			}
		}
		reverse_proxy `+backend.Addr+`
	}`)
	id := post(`{}`).do(t, c).Header.Get("X-Response-Id")
	var stuck []*stalled
	for range n / 10 {
		stuck = append(stuck, stall(t, c, get("/llm/streams/"+id)))
	}
	before := heap()
	close(s.much)
	for s.said[muchEvents-1].Load() == 0 {
		time.Sleep(littlePace)
	}
	missed := int64(len(stuck)) * muchEvents * muchSize
	if grown := heap() - before; grown > missed/4 { // there is one log of it, not one for each
		t.Errorf("the heap has grown by %d bytes while %d were missed", grown, missed)
	}

	q := get("/llm/streams/"+id, "Last-Event-ID", fmt.Sprintf("%s:%d", id, muchEvents))
	for q.do(t, c).StatusCode == http.StatusBadRequest { // it is still on the way
		time.Sleep(littlePace)
	}
	others := listeners(t, c, q, n-len(stuck), s)
	close(s.little)
	others.check(t)
	close(s.end)
	for _, one := range stuck[:5] {
		fr := one.frames(t)
		late, err := s.hears(fr, 0)
		if err != nil {
			t.Fatalf("one who was stuck: %v", err)
		}
		if len(late) > muchEvents/2 {
			t.Errorf("one who was stuck has had %d frames: it was not", len(late))
		}
		equal(t, "end", lastData(frames(t, fr, -1)), `{"finish_reason":"stop"}`)
	}
	equal(t, "upstream calls", backend.Calls.Load(), 1)
}

// audience is followers that read at once what comes.
type audience struct {
	wg   sync.WaitGroup
	mu   sync.Mutex
	late []time.Duration
	errs []error
}

// listeners makes n followers, which come when much was said.
func listeners(t *testing.T, c *rig.Caddy, q request, n int, s *speech) *audience {
	t.Helper()
	a := new(audience)
	for range n {
		body := q.do(t, c).Body
		a.wg.Go(func() {
			late, err := s.hears(rig.NewFrameReader(body), muchEvents)
			_ = body.Close()
			a.mu.Lock()
			defer a.mu.Unlock()
			a.late = append(a.late, late...)
			a.errs = append(a.errs, err)
		})
	}
	return a
}

// check waits until all have had everything.
func (a *audience) check(t *testing.T) {
	t.Helper()
	a.wg.Wait()
	if err := errors.Join(a.errs...); err != nil {
		t.Fatalf("not everybody has had everything: %.1000v", err)
	}
	slices.Sort(a.late)
	at := func(part float64) time.Duration { return a.late[int(part*float64(len(a.late)-1))] }
	t.Logf("%d followers, late by %v (median), %v (p99)", len(a.errs), at(0.5), at(0.99))
}

// Interface guards
var (
	_ caddy.ListenerWrapper = (*tightListener)(nil)
	_ caddyfile.Unmarshaler = (*tightListener)(nil)
)
