package loop_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/loop"
)

const (
	// readersOf is the variable of the environment that makes a process of
	// this test the clients of a benchmark: scheme and address of the server.
	readersOf = "LOOP_TEST_READERS_OF"
	readers   = 2000
)

var event = []byte(`data: {"text":" forty bytes, as an event of a token"}` + "\n\n")

// BenchmarkDelivery compares parked connections with ordinary handlers: the
// memory of one that waits, and the CPU time of one event for one client. The
// clients are another process.
func BenchmarkDelivery(b *testing.B) {
	for _, scheme := range []string{"http", "https"} {
		b.Run(scheme+"/parked", func(b *testing.B) {
			h := &parkers{loop: loop.New()}
			deliver(b, scheme, h, h.publish, h.leave)
		})
		b.Run(scheme+"/handler", func(b *testing.B) {
			h := &handlers{begin: sync.NewCond(new(sync.Mutex))}
			deliver(b, scheme, h, h.publish, h.leave)
		})
	}
}

// deliver measures what publish costs, which returns when every client has been
// sent an event.
func deliver(b *testing.B, scheme string, handler http.Handler, publish, leave func()) {
	b.Helper()
	before := memory()
	s := httptest.NewUnstartedServer(handler)
	if scheme == "https" {
		s.StartTLS()
	} else {
		s.Start()
	}
	defer s.Close()
	cmd := exec.CommandContext(b.Context(), os.Args[0]) //nolint:gosec // this program
	cmd.Env = append(os.Environ(), readersOf+"="+scheme+"://"+s.Listener.Addr().String())
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 1)); err != nil { // all have their head
		b.Fatal(err)
	}
	publish()
	kept := memory() - before
	start := cpu()
	for b.Loop() {
		publish()
	}
	b.StopTimer()
	defer leave()
	b.ReportMetric(float64(cpu()-start)/1e3/float64(b.N)/readers, "cpu-µs/delivery")
	b.ReportMetric(float64(kept)/readers/1024, "KB/conn")
	b.ReportMetric(0, "ns/op")
}

// memory is what the process holds for good: heap and stacks.
func memory() int64 {
	runtime.GC() // what it finds may wait for a finalizer, so:
	debug.FreeOSMemory()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc + m.StackInuse)
}

// cpu is the time that the process has used.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// handlers serve each client in its handler's goroutine.
type handlers struct {
	begin *sync.Cond
	seq   int // of the last event; begin.L guards it
	done  sync.WaitGroup
}

func (h *handlers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	_ = rc.Flush()
	for seq := 0; r.Context().Err() == nil; {
		h.begin.L.Lock()
		for h.seq == seq {
			h.begin.Wait()
		}
		seq = h.seq
		h.begin.L.Unlock()
		if seq < 0 {
			return
		}
		_, err := w.Write(event)
		if err == nil {
			_ = rc.Flush()
		}
		h.done.Done()
	}
}

func (h *handlers) publish() {
	h.done.Add(readers)
	h.begin.L.Lock()
	h.seq++
	h.begin.L.Unlock()
	h.begin.Broadcast()
	h.done.Wait()
}

func (h *handlers) leave() {
	h.begin.L.Lock()
	h.seq = -1
	h.begin.L.Unlock()
	h.begin.Broadcast()
}

// parkers park each client.
type parkers struct {
	loop *loop.Loop
	seq  atomic.Int64
	done sync.WaitGroup

	mu    sync.Mutex
	conns []*loop.Conn
}

// parked is the task of one client.
type parked struct {
	h   *parkers
	had int64
}

func (p *parked) Step(_ *loop.Conn, b []byte) ([]byte, loop.Next) {
	if seq := p.h.seq.Load(); p.had < seq {
		p.had = seq
		b = append(b, event...)
		p.h.done.Done()
	}
	return b, loop.Wait
}

func (*parked) Ended(*loop.Conn, loop.Reason, error) {}

func (h *parkers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.WriteHeader(http.StatusOK)
	c, err := h.loop.Take(w, r, &parked{h: h}, loop.Options{Stall: time.Minute})
	if err != nil {
		panic(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.conns = append(h.conns, c)
	c.Wake() // for what was published in the meantime
}

func (h *parkers) publish() {
	h.done.Add(readers)
	h.seq.Add(1)
	h.mu.Lock()
	for _, c := range h.conns {
		c.Wake()
	}
	h.mu.Unlock()
	h.done.Wait()
}

func (h *parkers) leave() {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_ = h.loop.Shutdown(ctx)
}

// read is the process of the clients.
func read(url string) {
	scheme, addr, _ := strings.Cut(url, "://")
	secure := scheme == "https"
	var all sync.WaitGroup
	for range readers {
		conn, err := net.Dial("tcp", addr) //nolint:noctx // of this machine
		if err != nil {
			panic(err)
		}
		if secure {
			conn = tls.Client(conn, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // a test's
		}
		if _, err := io.WriteString(conn, getRequest); err != nil {
			panic(err)
		}
		buf := make([]byte, 1024)
		if _, err := conn.Read(buf); err != nil {
			panic(err)
		}
		all.Go(func() {
			_, _ = io.Copy(io.Discard, conn)
		})
	}
	fmt.Println("connected")
	all.Wait()
}
