package llmstream_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
)

var update = flag.Bool("update", false, "rewrite what testdata/adapt expects, and the reference of the JSON")

// In testdata/adapt a file holds cases, separated by a line of ten equals
// signs: a Caddyfile, ten dashes, and what becomes of it. That is its JSON, or
// the error with which it is refused: "adapt: …" by the Caddyfile adapter, or
// "load: …" by Caddy when it sets the modules up.
const (
	betweenCases = "\n==========\n"
	betweenParts = "\n----------\n"
)

// Every option gives the JSON that it should, and what cannot work is refused
// with an error that names the option and where it stands. A file whose name
// begins with refused_ is about the option that follows.
func TestAdapt(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "adapt", "*.caddyfiletest"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".caddyfiletest")
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			cases := strings.Split(strings.TrimSuffix(string(content), "\n"), betweenCases)
			for i, c := range cases {
				caddyfile, want, _ := strings.Cut(c, betweenParts)
				got := becomes(t, caddyfile)
				if *update {
					cases[i] = caddyfile + betweenParts + got
					want = got
				}
				equal(t, caddyfile+"\nbecomes", got, want)
				option, refused := strings.CutPrefix(name, "refused_")
				checkRefusal(t, option, refused, got)
			}
			if *update {
				if err := os.WriteFile(file, []byte(strings.Join(cases, betweenCases)+"\n"), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// becomes returns the JSON of a Caddyfile, or the error.
func becomes(t *testing.T, caddyfile string) string {
	t.Helper()
	config, err := rig.Adapt(caddyfile + "\n")
	if err != nil {
		return "adapt: " + err.Error()
	}
	if err := validate(config); err != nil {
		return "load: " + err.Error()
	}
	var pretty bytes.Buffer
	if err := json.Indent(&pretty, config, "", "\t"); err != nil {
		t.Fatal(err)
	}
	return pretty.String()
}

// validate does what caddy validate does.
func validate(config []byte) error {
	cfg := new(caddy.Config)
	if err := json.Unmarshal(config, cfg); err != nil {
		return err
	}
	cfg.Logging = &caddy.Logging{Logs: map[string]*caddy.CustomLog{
		caddy.DefaultLoggerName: {BaseLog: caddy.BaseLog{WriterRaw: json.RawMessage(`{"output":"discard"}`)}},
	}}
	return caddy.Validate(cfg)
}

var atLine = regexp.MustCompile(`, at Caddyfile:\d+`)

// checkRefusal checks that an error helps.
func checkRefusal(t *testing.T, option string, want bool, got string) {
	t.Helper()
	phase, message, _ := strings.Cut(got, ": ")
	refused := phase == "adapt" || phase == "load"
	switch {
	case refused != want:
		t.Errorf("refused: %v\n%s", refused, got)
	case refused && !strings.Contains(message, option) && !strings.Contains(message, "unknown option"):
		t.Errorf("the error does not name %s: %s", option, message)
	case phase == "adapt" && !atLine.MatchString(message):
		t.Errorf("the error does not say where: %s", message)
	}
}
