package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
)

// event is one line of go test's report, as "go doc test2json" and "go help
// buildjson" describe it.
type event struct {
	Action     string // run, output, pass, fail, skip, build-output and others
	Package    string
	Test       string // empty where the event is about the package
	Output     string
	ImportPath string
}

// digest turns the report into what is worth reading.
type digest struct {
	w                       io.Writer
	running                 map[string]*packageRun
	passed, failed, skipped int
	skips                   []string            // "package.Test: reason"
	marked                  map[string][]string // tests that printed a mark, by mark
}

// packageRun is what one package printed so far. It is kept to the end of the
// package: only then is it known whether it has to be read.
type packageRun struct {
	tests map[string]*testRun
	order []string
	own   strings.Builder // what belongs to no test
}

type testRun struct {
	verdict string // "--- FAIL: TestX (0.01s)"
	output  strings.Builder
	result  string // pass, fail, skip; empty while it runs
	mark    string // that it printed
}

func newDigest(w io.Writer) *digest {
	return &digest{w: w, running: make(map[string]*packageRun), marked: make(map[string][]string)}
}

// read takes in the report up to its end and prints each package as it ends.
func (d *digest) read(report io.Reader) error {
	lines := bufio.NewReader(report)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var ev event
			if json.Unmarshal(line, &ev) == nil && ev.Action != "" {
				d.take(&ev)
			} else {
				fmt.Fprintf(d.w, "%s", line)
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (d *digest) take(ev *event) {
	if ev.Action == "build-output" {
		fmt.Fprint(d.w, ev.Output)
		return
	}
	pkg := d.running[ev.Package]
	if pkg == nil {
		pkg = &packageRun{tests: make(map[string]*testRun)}
		d.running[ev.Package] = pkg
	}
	ended := ev.Action == "pass" || ev.Action == "fail" || ev.Action == "skip"
	switch {
	case ev.Test != "" && ev.Action == "output":
		d.takeOutput(pkg.test(ev.Test), ev)
	case ev.Test != "" && ended:
		d.endTest(pkg.test(ev.Test), ev)
	case ev.Action == "output" && ev.Output != "PASS\n":
		pkg.own.WriteString(ev.Output)
	case ended:
		pkg.print(d.w, ev.Action == "fail")
		delete(d.running, ev.Package)
	}
}

func (p *packageRun) test(name string) *testRun {
	t := p.tests[name]
	if t == nil {
		t = &testRun{}
		p.tests[name] = t
		p.order = append(p.order, name)
	}
	return t
}

func (d *digest) takeOutput(t *testRun, ev *event) {
	if isProgress(ev.Output) {
		return
	}
	if line := strings.TrimLeft(ev.Output, " "); strings.HasPrefix(line, "--- ") && strings.Contains(line, ": "+ev.Test+" (") {
		t.verdict = ev.Output // comes last, is read first
		return
	}
	t.output.WriteString(ev.Output)
	for _, mark := range []string{sharedMark, toolMark} {
		if t.mark == "" && strings.Contains(ev.Output, mark) {
			t.mark = mark
			d.marked[mark] = append(d.marked[mark], ev.Package+"."+ev.Test)
		}
	}
}

// complain names the tests that were skipped with a mark, and returns the exit
// code for them.
func (d *digest) complain(mark, want string) int {
	if len(d.marked[mark]) == 0 {
		return 0
	}
	fmt.Fprintf(d.w, "FAIL: skipped for want of %s:\n", want)
	for _, name := range d.marked[mark] {
		fmt.Fprintln(d.w, "    "+name)
	}
	return 1
}

func isProgress(line string) bool {
	for _, step := range []string{"RUN", "PAUSE", "CONT", "NAME"} {
		if strings.HasPrefix(line, "=== "+step+" ") {
			return true
		}
	}
	return false
}

func (d *digest) endTest(t *testRun, ev *event) {
	t.result = ev.Action
	switch ev.Action {
	case "pass":
		d.passed++
	case "fail":
		d.failed++
	case "skip":
		d.skipped++
		d.skips = append(d.skips, ev.Package+"."+ev.Test+": "+reason(t.output.String()))
	}
}

// reason is what a skipped test printed, on one line.
func reason(output string) string {
	var said []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line != "" {
			said = append(said, line)
		}
	}
	if len(said) == 0 {
		return "no reason given"
	}
	return strings.Join(said, " ")
}

// print writes the line of the package, and before it, if the package failed,
// the output of its tests that failed or never ended. Where there is no such
// test (an exit, a data race between tests), all of them are suspects.
func (p *packageRun) print(w io.Writer, failed bool) {
	if failed {
		guilty := p.outputs(func(t *testRun) bool { return t.result == "fail" || t.result == "" })
		if guilty == "" {
			guilty = p.outputs(func(*testRun) bool { return true })
		}
		fmt.Fprint(w, guilty)
	}
	fmt.Fprint(w, p.own.String())
}

func (p *packageRun) outputs(wanted func(*testRun) bool) string {
	var all strings.Builder
	for _, name := range p.order {
		if t := p.tests[name]; wanted(t) {
			all.WriteString(t.verdict)
			all.WriteString(t.output.String())
		}
	}
	return all.String()
}

// summarize writes what was skipped and the counts, and what is left of
// packages whose end was never reported.
func (d *digest) summarize() {
	for name, pkg := range d.running {
		fmt.Fprintf(d.w, "%s did not end:\n", name)
		pkg.print(d.w, true)
	}
	for _, skip := range d.skips {
		fmt.Fprintln(d.w, "SKIP:", skip)
	}
	fmt.Fprintf(d.w, "\nTests: %d passed, %d failed, %d skipped\n", d.passed, d.failed, d.skipped)
}
