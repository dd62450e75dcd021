// Package tools finds the programs that tests need besides Go, and turns what
// they say into tests.
package tools

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Mark begins the message of a test that is skipped because a program is
// missing. scripts/gotest makes CI fail at it.
const Mark = "SKIP-TOOL"

// find returns the path of the first of some programs, and skips the test where
// there is none.
func find(tb testing.TB, advice string, names ...string) string {
	tb.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	tb.Skipf("%s: %s is missing; %s", Mark, names[0], advice)
	return ""
}

// Node returns the path of Node.js.
func Node(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install Node.js 20 or later and npm: as root on Debian, scripts/testdeps.sh does", "node")
}

// Chromium returns the path of Chromium.
func Chromium(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install Chromium: as root on Debian, scripts/testdeps.sh does", "chromium", "chromium-browser", "google-chrome")
}

// Python returns the path of Python.
func Python(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install Python 3: as root on Debian, scripts/testdeps.sh does", "python3")
}

// HAProxy returns the path of HAProxy.
func HAProxy(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install HAProxy: as root on Debian, scripts/testdeps.sh does", "haproxy")
}

// Nginx returns the path of nginx.
func Nginx(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install nginx: as root on Debian, scripts/testdeps.sh does", "nginx")
}

// Prometheus returns the path of one of Prometheus's programs.
func Prometheus(tb testing.TB, program string) string {
	tb.Helper()
	return find(tb, "install Prometheus: as root on Debian, scripts/testdeps.sh does", program)
}

// Redis returns the path of Redis's server.
func Redis(tb testing.TB) string {
	tb.Helper()
	return find(tb, "install Redis 7 or later: as root on Debian, scripts/testdeps.sh does", "redis-server")
}

// Packages skips the test where the npm packages of a folder are not installed.
func Packages(tb testing.TB, dir string) {
	tb.Helper()
	if _, err := os.Stat(filepath.Join(dir, "node_modules")); err != nil {
		tb.Skipf("%s: the npm packages of %s are missing; scripts/testdeps.sh installs them", Mark, dir)
	}
}

var result = regexp.MustCompile(`^(not )?ok \d+ - (.*?)(?: # (?:(SKIP|TODO) ?(.*)|.*))?$`)

// RunTAP runs a program that prints results as the Test Anything Protocol says,
// and makes a test of each.
func RunTAP(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	out, err := cmd.CombinedOutput()
	failed, n := false, 0
	var detail []string // the lines about a result stand after it
	flush := func() {}
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		m := result.FindStringSubmatch(lines.Text())
		if m == nil {
			detail = append(detail, lines.Text())
			continue
		}
		flush()
		detail = nil
		n++
		flush = func() {
			t.Run(m[2], func(t *testing.T) {
				switch {
				case m[1] != "":
					failed = true
					t.Error(strings.Join(detail, "\n"))
				case m[3] != "":
					t.Skip(m[4])
				}
			})
		}
	}
	flush()
	if err != nil && !failed || n == 0 {
		t.Fatalf("%d results, %v\n%s", n, err, out)
	}
}
