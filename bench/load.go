//go:build linux

package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"time"
)

const (
	// patience is how long after its time a stream may end before it is cut.
	patience = 30 * time.Second
	// prompt is the length of a request's only message, in bytes.
	prompt = 600
	// oneOf says which followers stall where some do: one of so many.
	oneOf = 10
	// sampleEvery is the time between two looks at the proxy's memory.
	sampleEvery = 100 * time.Millisecond
)

// load is what the clients of one row do: they start evenly over ramp, and after
// settle the measurement lasts for hold. Streams are long enough to last until
// then, and all are read to their end.
type load struct {
	clients            int
	perSecond          int // tokens of one stream; 0 is without pause
	ramp, settle, hold time.Duration
	tokens             int // of one stream without pause
	pad                int // bytes of text after the mark

	// follow lets all clients read the response that the first of them asks for.
	follow bool
	// stall lets one client of oneOf read nothing while the measurement lasts,
	// with small socket buffers.
	stall bool
}

// streamTokens returns how many tokens each stream has.
func (l *load) streamTokens() int {
	if l.perSecond == 0 {
		return l.tokens
	}
	return l.perSecond * int((l.ramp + l.settle + l.hold + time.Second).Seconds())
}

// interval returns the time between two tokens of a stream.
func (l *load) interval() time.Duration {
	if l.perSecond == 0 {
		return 0
	}
	return time.Second / time.Duration(l.perSecond)
}

// client is one connection with one request.
type client struct {
	fd       int
	started  int64
	spoken   bool // the first token has come
	finished bool
	stalls   bool
	reader   reader
	checker  checker
}

// loader runs the clients of one load. One goroutine does all of it: it waits
// for whatever comes next, bytes or the moment of the next action, so that 10,000
// clients cost little of the machine that the proxy shares with them.
type loader struct {
	load
	clock clock
	to    netip.AddrPort
	watch *process // nil where there is no proxy

	poll    int
	clients []client
	open    int
	buf     []byte
	scratch []byte

	begin, end  int64 // of the measurement; 0 until it is
	first, last int64 // when the first request was sent and the last bytes came
	received    int   // tokens while measuring
	checked     int   // tokens over the whole run
	latency     []int64
	ttft        []int64
	faults      faults
	reasons     map[string]int
	samples     samples
}

// samples is what was seen of the proxy's process.
type samples struct {
	idle, begin, peak int64 // memory in bytes
	end               int64
	live              int64         // what heap and stacks grew by while clients stalled
	cpu               time.Duration // used while measuring
}

// run opens the clients and returns when all have ended.
func (l *loader) run() error {
	poll, err := syscall.EpollCreate1(syscall.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("epoll_create1: %w", err)
	}
	l.poll = poll
	l.clients = make([]client, l.load.clients)
	l.buf = make([]byte, 256<<10)
	l.reasons = make(map[string]int)
	defer func() {
		for i := range l.clients {
			if c := &l.clients[i]; c.fd != 0 && !c.finished {
				l.fail(c, errors.New("did not end"))
			}
		}
		syscall.Close(poll)
	}()
	if l.samples.idle, err = l.watch.memory(); err != nil {
		return err
	}
	l.first = l.clock.now()
	if l.follow {
		if err := l.lead(); err != nil {
			return err
		}
	}
	return l.timeline()
}

// lead lets the first client ask for the response that the others follow, and
// returns when its id is known.
func (l *loader) lead() error {
	l.start(0)
	for deadline := time.Now().Add(patience); l.clients[0].reader.id == ""; {
		if err := l.wait(time.Now().Add(10 * time.Millisecond)); err != nil {
			return err
		}
		if l.clients[0].finished || time.Now().After(deadline) {
			return fmt.Errorf("no response to follow: %v", l.faultReasons())
		}
	}
	return nil
}

// timeline runs everything that has its time.
func (l *loader) timeline() error {
	t0 := time.Now()
	begin := t0.Add(l.ramp + l.settle)
	end := begin.Add(l.hold)
	deadline := end.Add(l.ramp + l.settle + patience)
	if l.perSecond == 0 {
		deadline = t0.Add(5 * time.Minute)
	}
	sample := t0
	for next := l.open; ; {
		now := time.Now()
		for ; next < len(l.clients) && !now.Before(l.startOf(t0, next)); next++ {
			l.start(next)
		}
		if l.begin == 0 && !now.Before(begin) {
			if err := l.beginMeasuring(); err != nil {
				return err
			}
		}
		if l.end == 0 && l.begin != 0 && l.over(now, end, next) {
			if err := l.endMeasuring(); err != nil {
				return err
			}
		}
		if l.end != 0 && l.open == 0 || now.After(deadline) {
			return nil
		}
		if l.begin != 0 && l.end == 0 && now.After(sample) {
			sample = now.Add(sampleEvery)
			if err := l.sample(); err != nil {
				return err
			}
		}
		wake := now.Add(5 * time.Millisecond)
		if next < len(l.clients) {
			wake = l.startOf(t0, next)
		}
		if err := l.wait(wake); err != nil {
			return err
		}
	}
}

// startOf returns when client i starts.
func (l *loader) startOf(t0 time.Time, i int) time.Time {
	return t0.Add(l.ramp * time.Duration(i) / time.Duration(len(l.clients)))
}

// over reports whether the measurement ends now: without pause it lasts as long
// as the streams.
func (l *loader) over(now, end time.Time, started int) bool {
	if l.perSecond == 0 {
		return started == len(l.clients) && l.open == 0
	}
	return !now.Before(end)
}

func (l *loader) beginMeasuring() error {
	if l.stall {
		live, err := l.watch.live()
		if err != nil {
			return err
		}
		l.samples.live = -live
		l.interest(syscall.EPOLL_CTL_DEL)
	}
	memory, err := l.watch.memory()
	if err != nil {
		return err
	}
	l.samples.begin = memory
	cpu, err := l.watch.cpu()
	l.samples.cpu = -cpu
	l.begin = l.clock.now()
	return err
}

func (l *loader) endMeasuring() error {
	l.end = l.clock.now()
	cpu, err := l.watch.cpu()
	if err != nil {
		return err
	}
	l.samples.cpu += cpu
	if l.samples.end, err = l.watch.memory(); err != nil {
		return err
	}
	l.samples.peak = max(l.samples.peak, l.samples.end)
	if err := l.watch.profile(); err != nil {
		return err
	}
	if l.stall {
		live, err := l.watch.live()
		if err != nil {
			return err
		}
		l.samples.live += live
		l.interest(syscall.EPOLL_CTL_ADD)
	}
	return nil
}

// interest lets the clients that stall begin or cease to.
func (l *loader) interest(op int) {
	for i := range l.clients {
		c := &l.clients[i]
		if !c.stalls || c.finished {
			continue
		}
		if err := l.control(op, i); err != nil {
			l.fail(c, err)
		}
	}
}

func (l *loader) sample() error {
	memory, err := l.watch.memory()
	l.samples.peak = max(l.samples.peak, memory)
	return err
}

func (l *loader) control(op, i int) error {
	// The kernel gives back what it is given, which need be no descriptor.
	event := syscall.EpollEvent{Events: syscall.EPOLLIN | syscall.EPOLLRDHUP, Fd: int32(i)} //nolint:gosec // some thousands
	if err := syscall.EpollCtl(l.poll, op, l.clients[i].fd, &event); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

// start opens client i and sends its request.
func (l *loader) start(i int) {
	c := &l.clients[i]
	c.started = l.clock.now()
	c.stalls = l.stall && i%oneOf == oneOf/2
	fd, err := l.dial(c.stalls)
	if err != nil {
		l.fail(c, err)
		return
	}
	c.fd = fd
	l.open++
	request := l.request(i)
	if n, err := syscall.Write(fd, request); err != nil || n < len(request) {
		l.fail(c, fmt.Errorf("sending the request: %d bytes, %w", n, err))
		return
	}
	if err := l.control(syscall.EPOLL_CTL_ADD, i); err != nil {
		l.fail(c, err)
	}
}

// dial returns a connected socket that does not block.
func (l *loader) dial(small bool) (int, error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("socket: %w", err)
	}
	if small {
		// Over loopback a segment has 64 KiB, and the sender's buffer several of
		// them: megabytes would fit between a proxy and a client that stalls.
		err = errors.Join(
			syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10),
			syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536))
	}
	// The other end is on this machine: connecting takes no time worth a state.
	err = errors.Join(err,
		syscall.Connect(fd, &syscall.SockaddrInet4{Port: int(l.to.Port()), Addr: l.to.Addr().As4()}),
		syscall.SetNonblock(fd, true))
	if err != nil {
		syscall.Close(fd)
		return 0, fmt.Errorf("connecting: %w", err)
	}
	return fd, nil
}

func (l *loader) request(i int) []byte {
	if l.follow && i > 0 {
		return fmt.Appendf(nil, "GET %s/streams/%s HTTP/1.1\r\nHost: %s\r\nAccept: text/event-stream\r\n\r\n",
			resumePath, l.clients[0].reader.id, l.to)
	}
	body := fmt.Sprintf(`{"model":"sim","stream":true,"max_tokens":%d,"messages":[{"role":"user","content":%q}]}`,
		l.streamTokens(), strings.Repeat("word ", prompt/len("word ")))
	return fmt.Appendf(nil, "POST /v1/chat/completions HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", l.to, len(body), body)
}

// wait reads what comes until the given moment, and at least what is there.
func (l *loader) wait(until time.Time) error {
	var events [256]syscall.EpollEvent
	for {
		ahead := max(0, time.Until(until))
		n, err := syscall.EpollWait(l.poll, events[:], int((ahead + time.Millisecond - 1).Milliseconds()))
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("epoll_wait: %w", err)
		}
		for _, event := range events[:max(0, n)] {
			l.receive(&l.clients[event.Fd])
		}
		if ahead == 0 || !time.Now().Before(until) {
			return nil
		}
	}
}

// receive reads what one client has, once: the others wait.
func (l *loader) receive(c *client) {
	n, err := syscall.Read(c.fd, l.buf)
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EINTR) {
		return
	}
	if err == nil && n == 0 {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		l.fail(c, err)
		return
	}
	now := l.clock.now()
	l.last = now
	measuring := l.begin != 0 && l.end == 0
	l.scratch, err = c.reader.read(l.buf[:n], l.scratch, func(number int, sent int64) {
		if !c.spoken {
			c.spoken = true
			l.ttft = append(l.ttft, now-c.started)
		}
		l.checked++
		if measuring {
			l.received++
			if sent >= l.begin && !c.stalls {
				l.latency = append(l.latency, now-sent)
			}
		}
		c.checker.token(number)
	})
	if err != nil {
		l.fail(c, err)
	} else if c.reader.ended {
		l.close(c)
	}
}

// fail ends a client that did not get what it should have got.
func (l *loader) fail(c *client, err error) {
	l.reasons[err.Error()]++
	l.faults.failed++
	l.close(c)
}

// close ends a client and counts what its stream had wrong.
func (l *loader) close(c *client) {
	c.finished = true
	l.faults.add(c.checker.end(l.streamTokens()))
	if c.fd != 0 {
		l.open--
		syscall.Close(c.fd)
	}
}

// faultReasons returns why clients failed, each with how many.
func (l *loader) faultReasons() []string {
	reasons := make([]string, 0, len(l.reasons))
	for _, reason := range slices.Sorted(maps.Keys(l.reasons)) {
		reasons = append(reasons, fmt.Sprintf("%d × %s", l.reasons[reason], reason))
	}
	return reasons
}

// result returns the figures of a load that has run.
func (l *loader) result() result {
	r := result{faults: l.faults, reasons: l.faultReasons(), checked: l.checked, live: l.samples.live}
	end := l.end
	if l.perSecond == 0 {
		end = l.last
	}
	n := float64(l.load.clients)
	r.rate = float64(l.received) / (float64(end-l.begin) / 1e6)
	if l.watch != nil {
		r.memory = float64(l.samples.peak-l.samples.idle) / n / 1e3
		r.growth = float64(l.samples.end-l.samples.begin) / 1e6
		r.cpu = float64(l.samples.cpu.Microseconds()) / float64(max(1, l.received))
	}
	slices.Sort(l.latency)
	slices.Sort(l.ttft)
	r.p50, r.p99 = quantile(l.latency, .5), quantile(l.latency, .99)
	r.ttft50, r.ttft99 = quantile(l.ttft, .5), quantile(l.ttft, .99)
	return r
}

// quantile returns that of sorted microseconds, in milliseconds.
func quantile(sorted []int64, q float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[int(q*float64(len(sorted)-1))]) / 1e3
}
