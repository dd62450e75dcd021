//go:build ollama

package ollama_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// server is a running Ollama.
type server struct {
	addr  string // host and port
	pid   int    // of ollama serve
	log   logFile
	guard *exec.Cmd
	lease io.Closer // the server lives as long as this is open

	// Where the models are, by their names.
	blobs map[string]string
}

// guardScript runs Ollama until its standard input ends, which it does when the
// process of the tests ends in whatever way, and removes its folder. Where a
// runner is paused at that moment, the kernel sends the group a SIGHUP.
const guardScript = `
trap '' HUP
"$0" serve &
server=$!
echo "process $server"
read -r _
kill "$server"
wait "$server"
rm -rf "$1"
`

const (
	startTime = time.Minute
	stopTime  = 15 * time.Second
)

// startServer starts Ollama on a free port, with the models of this package.
func startServer(program string) (s *server, err error) {
	dir, err := os.MkdirTemp("", "ollama-test-")
	if err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer func() { _ = log.Close() }() // the processes have it
	s = &server{log: logFile{log.Name()}, blobs: make(map[string]string)}
	s.guard = exec.CommandContext(context.Background(), "sh", "-c", guardScript, program, dir) //nolint:gosec // scripts/ollama.sh says which
	// In a group of its own it outlives the Ctrl-C that ends the tests.
	s.guard.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	s.guard.Stdout, s.guard.Stderr = log, log
	s.guard.Env = append(
		os.Environ(),
		"HOME="+dir,
		"OLLAMA_MODELS="+filepath.Join(dir, "models"),
		"OLLAMA_HOST=127.0.0.1:0",
		"OLLAMA_NO_CLOUD=1",
		"OLLAMA_DEBUG=1", // the log names the runners' processes
		"OLLAMA_KEEP_ALIVE=-1",
		"OLLAMA_MAX_LOADED_MODELS=2",
		fmt.Sprint("OLLAMA_NUM_PARALLEL=", len(endpoints)),
	)
	if s.lease, err = s.guard.StdinPipe(); err == nil {
		err = s.guard.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	if err := s.prepare(dir); err != nil {
		return nil, errors.Join(err, fmt.Errorf("the last that Ollama has logged:\n%s", s.log.tail(20)), s.stop())
	}
	return s, nil
}

var (
	started   = regexp.MustCompile(`(?m)^process (\d+)$`)
	listening = regexp.MustCompile(`msg="Listening on (127\.0\.0\.1:\d+)`)
)

// prepare waits until Ollama listens and gives it the models.
func (s *server) prepare(dir string) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	process, err := s.log.await(ctx, 0, started)
	if err != nil {
		return err
	}
	if s.pid, err = strconv.Atoi(process[1]); err != nil {
		return err
	}
	address, err := s.log.await(ctx, 0, listening)
	if err != nil {
		return err
	}
	s.addr = address[1]
	for _, m := range models {
		if err := s.create(ctx, dir, m); err != nil {
			return fmt.Errorf("model %s: %w", m.names[0], err)
		}
	}
	return nil
}

// stop stops Ollama. What does not end by itself is killed.
func (s *server) stop() error {
	_ = s.lease.Close()
	ended := make(chan struct{})
	go func() {
		_ = s.guard.Wait() // how it ends does not matter
		close(ended)
	}()
	select {
	case <-ended:
		return nil
	case <-time.After(stopTime):
	}
	// The group is Ollama, its runners and the guard.
	err := syscall.Kill(-s.guard.Process.Pid, syscall.SIGKILL)
	<-ended
	return errors.Join(fmt.Errorf("Ollama has not stopped within %v", stopTime), err)
}

// runner returns the process that runs a model. The model must have been asked.
func (s *server) runner(model string) (int, error) {
	pattern := regexp.MustCompile(`msg="finished setting up".* runner\.pid=(\d+) runner\.model=\S*` +
		regexp.QuoteMeta(strings.ReplaceAll(s.blobs[model], ":", "-")))
	matches := pattern.FindAllSubmatch(s.log.bytes(), -1)
	if len(matches) == 0 {
		return 0, fmt.Errorf("no process runs the model %s", model)
	}
	return strconv.Atoi(string(matches[len(matches)-1][1]))
}

// post sends a request with a JSON body to Ollama itself.
func (s *server) post(ctx context.Context, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	got, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("POST %s: %s: %s", path, resp.Status, got)
	}
	return got, err
}

// logFile is what Ollama has logged.
type logFile struct{ path string }

func (l logFile) bytes() []byte {
	b, _ := os.ReadFile(l.path) // without a log a test fails for what it misses
	return b
}

// size is where what is logged from now on begins.
func (l logFile) size() int { return len(l.bytes()) }

// await waits until a pattern is in the log after an offset, and returns its
// first match with the submatches.
func (l logFile) await(ctx context.Context, after int, pattern *regexp.Regexp) ([]string, error) {
	for {
		if b := l.bytes(); len(b) > after {
			if match := pattern.FindSubmatch(b[after:]); match != nil {
				list := make([]string, len(match))
				for i, m := range match {
					list[i] = string(m)
				}
				return list, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("Ollama does not log %s: %w", pattern, ctx.Err())
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// worthReading is what not only a developer of Ollama reads in the log.
var worthReading = regexp.MustCompile(`(?m)^(\[GIN\]|time=\S+ level=(INFO|WARN|ERROR)|panic|fatal).*\n`)

// tail returns the last lines that are worth reading.
func (l logFile) tail(n int) string {
	lines := worthReading.FindAll(l.bytes(), -1)
	return string(bytes.Join(lines[max(0, len(lines)-n):], nil))
}
