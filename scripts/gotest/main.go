// Command gotest runs go test and prints a digest of it: the build errors, the
// whole output of what failed, one line for each package, the reason of every
// skipped test, and the counts. Nothing is printed of a test that passed.
//
//	go run ./scripts/gotest -race -timeout 10m ./...
//
// All arguments are those of go test. It must run in the root of the checkout.
//
// The invariant: it exits with 0 only if go test did, if no test that needs the
// recorded streams was skipped although they are there, and in CI if none was
// skipped for want of a program.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
)

// Tests that need the recorded streams, or a redis-server, skip with these marks
// where that is missing. Where it is there, a skip means that the check silently
// went away.
const (
	sharedMark = "SKIP-SHARED"
	sharedDir  = "../shared/corpus"
)

// Tests that need a program besides Go, such as a browser, skip with this mark
// where it is missing. CI has installed all of them.
const toolMark = "SKIP-TOOL"

func main() {
	// An interrupt reaches go test as well, which ends by it. Waiting for that
	// keeps what it prints last, so the signal is taken and dropped here.
	signal.Notify(make(chan os.Signal, 1), os.Interrupt)

	d := newDigest(os.Stdout)
	code, err := run(goTest(os.Args[1:]...), d)
	d.summarize()
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(2)
	}
	if _, err := os.Stat(sharedDir); err == nil {
		code = max(code, d.complain(sharedMark, "the recorded streams, but "+sharedDir+" is there"))
	}
	if os.Getenv("CI") != "" {
		code = max(code, d.complain(toolMark, "a program, which scripts/testdeps.sh should have installed"))
	}
	os.Exit(code)
}

func goTest(args ...string) *exec.Cmd {
	cmd := exec.Command("go", append([]string{"test", "-json"}, args...)...) //nolint:gosec // the arguments are the caller's own
	cmd.Stderr = os.Stderr
	return cmd
}

// run feeds the report of cmd to d and returns the exit code. The error is
// about the running, not about the tests.
func run(cmd *exec.Cmd, d *digest) (int, error) {
	report, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	readErr := d.read(report)
	err = cmd.Wait()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && exit.Exited() {
		return exit.ExitCode(), readErr
	}
	return 0, errors.Join(readErr, err)
}
