//go:build linux

// Bench compares what a token stream costs in llm_stream with what it costs in a
// plain Caddy: reverse_proxy and nothing before it. It starts the proxies, one
// after the other and each for itself, before a simulated LLM backend of its own,
// opens the clients, and prints a table. It reports and never decides: what is
// slow is no failure of the program's.
//
// Invariant: every token is checked for loss, repetition and order, in every
// stream of every row, over the whole run and not only while it measures.
//
//	make bench           two to three minutes: 1,000 streams × 10 tokens/s
//	make bench FULL=1    9,800 streams and 10,000 followers, about ten minutes
//	make bench PEERS=1   nginx too, where it is installed
//	make bench RUNS=3    the median of three runs
//
// Everything is on 127.0.0.1, in three processes that share the machine: the
// backend, the proxy, and this one, which is all clients. docs/performance.md
// says what the columns mean and has a run.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"time"
)

// resumePath is where the resumable route has its control endpoints.
const resumePath = "/llm"

func main() {
	runtime.LockOSThread() // start needs it
	run := benchMain
	args := os.Args[1:]
	if len(args) > 0 && args[0] == "backend" {
		run, args = backendMain, args[1:]
	}
	if err := run(args); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// subject is what the clients of a row talk to.
type subject struct {
	name string
	// start runs it before a backend, in a directory of its own. nil: the clients
	// ask the backend.
	start func(b *bench, dir string, backend netip.AddrPort) (*process, error)
}

// caddy returns a Caddy with a directive before its reverse_proxy.
func caddy(name, directive string) subject {
	return subject{name, func(b *bench, dir string, backend netip.AddrPort) (*process, error) {
		return startCaddy(b.caddy, dir, directive, backend)
	}}
}

var (
	direct    = subject{name: "no proxy"}
	plain     = caddy("plain Caddy", "")
	ours      = caddy("llm_stream", "llm_stream /v1/*")
	resumable = caddy("with resume", "llm_stream /v1/* {\n\t\tresume "+resumePath+"\n\t}")
	nginx     = subject{"nginx", func(_ *bench, dir string, backend netip.AddrPort) (*process, error) {
		return startNginx(dir, backend)
	}}
)

// section is the rows of one load. Their ratios are to the row of plain Caddy in
// the same section, or where it has none in that of the first section.
type section struct {
	name     string
	load     load
	subjects []subject
}

// plan returns what is measured.
func plan(full, peers bool) []section {
	one := load{clients: 1000, perSecond: 10, ramp: 2 * time.Second, settle: 2 * time.Second, hold: 10 * time.Second}
	many := one
	// While a client stalls, more has to be said than its socket takes and than a
	// client may lag (64 events), and less long than a write may take (30s).
	stalled := load{
		clients: 500, perSecond: 20, ramp: 2 * time.Second, settle: 2 * time.Second, hold: 10 * time.Second,
		pad: 2000,
	}
	flood := load{clients: 200, tokens: 10000}
	if full {
		one = load{clients: 9800, perSecond: 2, ramp: 10 * time.Second, settle: 5 * time.Second, hold: 20 * time.Second}
		many = one
		many.clients = 10000
		stalled = many
		stalled.perSecond, stalled.hold, stalled.pad = 4, 35*time.Second, 4000
		flood.tokens = 50000
	}
	many.follow, stalled.follow, stalled.stall = true, true, true
	proxies := []subject{direct, plain, ours, resumable}
	if peers {
		proxies = append(proxies, nginx)
	}
	sections := []section{
		{"one-to-one", one, proxies},
		{"followers", many, []subject{resumable}},
		{"stalled followers", stalled, []subject{resumable}},
		{"saturation", flood, proxies},
	}
	if full {
		fast := many
		fast.perSecond, fast.hold = 20, 10*time.Second
		sections = append(sections, section{"followers, fast", fast, []subject{resumable}})
	}
	return sections
}

// bench is one invocation.
type bench struct {
	caddy    string // binary
	profiles string // directory, or empty
	clock    clock
}

func benchMain(args []string) error {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	binary := flags.String("caddy", "bin/caddy", "`path` of a Caddy with llm_stream")
	full := flags.Bool("full", false, "9,800 streams and 10,000 followers")
	peers := flags.Bool("peers", false, "nginx too")
	runs := flags.Int("runs", 1, "take the median of so many")
	only := flags.String("only", "", "rows whose section and name match the `pattern`")
	profiles := flags.String("profiles", "", "`directory` for a heap profile of each Caddy")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 || *runs < 1 {
		flags.Usage()
		return flag.ErrHelp
	}
	pattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	if *peers {
		if _, err := nginxPath(); err != nil {
			fmt.Fprintln(os.Stderr, "bench: no nginx (apt-get install nginx-light), so there are no rows of it")
			*peers = false
		}
	}
	b := &bench{caddy: *binary, profiles: *profiles, clock: clock{time.Now()}}
	busy := loadAverage()
	rows, err := b.run(plan(*full, *peers), *runs, pattern)
	if err != nil {
		return err
	}
	var report strings.Builder
	printReport(&report, rows)
	fmt.Fprintf(&report, "Load average of the %d cores: %s before, %s at the end.\n", runtime.NumCPU(), busy, loadAverage())
	_, err = os.Stdout.WriteString(report.String())
	return err
}

// loadAverage returns that of the last minute. Latency on a machine that has
// other work to do says little.
func loadAverage() string {
	average, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "unknown"
	}
	one, _, _ := strings.Cut(string(average), " ")
	return one
}

// row is one line of the table, with a result for each run.
type row struct {
	section *section
	subject subject
	results []result
}

func (b *bench) run(sections []section, runs int, pattern *regexp.Regexp) ([]row, error) {
	var rows []row
	for i := range sections {
		s := &sections[i]
		for _, subject := range s.subjects {
			if !pattern.MatchString(s.name + ": " + subject.name) {
				continue
			}
			rows = append(rows, row{section: s, subject: subject})
		}
	}
	for range runs {
		for i := range rows {
			r := &rows[i]
			fmt.Fprintf(os.Stderr, "%s: %s\n", r.section.name, r.subject.name)
			result, err := b.measure(r)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w", r.section.name, r.subject.name, err)
			}
			r.results = append(r.results, result)
		}
	}
	return rows, nil
}

// measure runs the load of a row once.
func (b *bench) measure(r *row) (result, error) {
	dir, err := os.MkdirTemp("", "llmstream-bench-")
	if err != nil {
		return result{}, err
	}
	defer os.RemoveAll(dir)
	l := r.section.load
	backend, err := startBackend(b.clock, &l)
	defer backend.close()
	if err != nil {
		return result{}, err
	}
	to := backend.addr
	var proxy *process
	if r.subject.start != nil {
		proxy, err = r.subject.start(b, dir, backend.addr)
		defer proxy.close()
		if err != nil {
			return result{}, err
		}
		to = proxy.addr
	}
	// What a process reads in and sets up for its first requests is not what a
	// stream costs.
	warm := l
	warm.clients, warm.ramp, warm.settle, warm.hold, warm.tokens = 20, 0, 0, time.Second, 100
	warm.stall = false
	if err := (&loader{load: warm, clock: b.clock, to: to, watch: proxy}).run(); err != nil {
		return result{}, fmt.Errorf("warming up: %w", err)
	}
	if b.profiles != "" && proxy != nil {
		name := strings.ReplaceAll(r.section.name+"-"+r.subject.name, " ", "-")
		proxy.profileTo = filepath.Join(b.profiles, name)
	}
	loader := &loader{load: l, clock: b.clock, to: to, watch: proxy}
	if err := loader.run(); err != nil {
		return result{}, err
	}
	res := loader.result()
	if l.stall {
		res.slow, err = proxy.slowClients()
	}
	return res, err
}
