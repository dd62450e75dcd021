package main

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The report comes from go test itself, so that a change of its format shows.
func TestDigest(t *testing.T) {
	t.Parallel()
	const head = "package p\n\nimport \"testing\"\n\n"
	tests := map[string]struct {
		source string
		code   int
		want   []string // in this order
		never  string
	}{
		"passing tests are only counted": {
			source: head + "func TestA(t *testing.T) { t.Log(\"chatter\"); t.Run(\"sub\", func(*testing.T) {}) }\n",
			want:   []string{"ok  \texample.com/p\t", "\nTests: 2 passed, 0 failed, 0 skipped\n"},
			never:  "chatter",
		},
		"a failure is whole and before its package": {
			source: head + `
func TestA(t *testing.T) { t.Log("chatter") }
func TestB(t *testing.T) {
	t.Log("before")
	t.Run("sub", func(t *testing.T) { t.Error("one\ntwo") })
}
`,
			code: 1,
			want: []string{
				"--- FAIL: TestB (", "before\n", "--- FAIL: TestB/sub (", "one\n", "two\n",
				"FAIL\texample.com/p\t", "\nTests: 1 passed, 2 failed, 0 skipped\n",
			},
			never: "chatter",
		},
		"a skip gives its reason": {
			source: head + "func TestA(t *testing.T) { t.Skip(\"no moon\") }\n",
			want:   []string{"ok  \t", "SKIP: example.com/p.TestA: p_test.go:5: no moon\n", "0 passed, 0 failed, 1 skipped"},
			never:  "--- SKIP",
		},
		"a panic is whole": {
			source: head + "func TestA(t *testing.T) { t.Log(\"before\"); panic(\"boom\") }\n",
			code:   1,
			want:   []string{"panic: boom", "goroutine ", "p_test.go:5", "FAIL\texample.com/p\t", "1 failed"},
		},
		"an exit makes every test a suspect": {
			source: `package p

import ("os"; "testing")

func TestA(t *testing.T) { t.Log("the last words") }
func TestMain(m *testing.M) { m.Run(); os.Exit(3) }
`,
			code: 1,
			want: []string{"--- PASS: TestA (", "the last words", "FAIL\texample.com/p\t"},
		},
		"a build error is whole": {
			source: head + "func TestA(t *testing.T) { undefined() }\n",
			code:   1,
			want:   []string{"undefined: undefined", "FAIL\texample.com/p [build failed]", "0 passed, 0 failed"},
		},
		"no test": {
			source: "package p\n",
			want:   []string{"Tests: 0 passed, 0 failed, 0 skipped\n"},
			never:  "FAIL",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, _, code := digestOf(t, test.source)
			if code != test.code {
				t.Errorf("exit code %d, want %d", code, test.code)
			}
			rest := got
			for _, want := range test.want {
				_, after, found := strings.Cut(rest, want)
				if !found {
					t.Fatalf("%q is missing or out of order in:\n%s", want, got)
				}
				rest = after
			}
			if test.never != "" && strings.Contains(got, test.never) {
				t.Errorf("%q should not be in:\n%s", test.never, got)
			}
		})
	}
}

func TestMarkedTestsAreNamedOnce(t *testing.T) {
	t.Parallel()
	// Spelled in two pieces, or this test would be found when it fails.
	split := func(mark string) string { return mark[:4] + "\"+\"" + mark[4:] }
	mark, tool := split(sharedMark), split(toolMark)
	_, marked, _ := digestOf(t, `package p

import "testing"

func TestA(t *testing.T) { t.Log("`+mark+`: once"); t.Skip("`+mark+`: twice") }
func TestB(t *testing.T) { t.Skip("for another reason") }
func TestC(t *testing.T) { t.Log("`+mark+`, and yet it passes") }
func TestD(t *testing.T) { t.Skip("`+tool+`") }
`)
	for mark, want := range map[string][]string{
		sharedMark: {"example.com/p.TestA", "example.com/p.TestC"},
		toolMark:   {"example.com/p.TestD"},
	} {
		if !slices.Equal(marked[mark], want) {
			t.Errorf("marked %q, want %q", marked[mark], want)
		}
	}
}

// A report can hold what is no report, and stop in the middle.
func TestBrokenReport(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := newDigest(&out)
	err := d.read(strings.NewReader(`warning: not JSON
{"Action":"output","Package":"p","Test":"TestA","Output":"half a "}
{"Action":"output","Package":"p","Test":"TestA","Output":"story\n"}
{"Action":"output","Pack`))
	if err != nil {
		t.Fatal(err)
	}
	d.summarize()
	want := "warning: not JSON\n" + `{"Action":"output","Pack` + "p did not end:\nhalf a story\n\nTests: 0 passed, 0 failed, 0 skipped\n"
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", out.String(), want)
	}
}

// digestOf runs the digest over a package of one test file.
func digestOf(t *testing.T, source string) (printed string, marked map[string][]string, code int) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module example.com/p\n\ngo 1.26\n",
		"p_test.go": source,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	d := newDigest(&out)
	cmd := goTest("-count=1", "./...")
	cmd.Dir = dir
	code, err := run(cmd, d)
	if err != nil {
		t.Fatal(err)
	}
	d.summarize()
	return out.String(), d.marked, code
}
