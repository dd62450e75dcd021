package deploy_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/rig"
	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// patience is how long Prometheus may take for everything together.
const patience = 25 * time.Second

// startPrometheus runs the example configuration, with one target and a shorter
// interval, until the test ends. It returns the address of the API.
func startPrometheus(t *testing.T, target string) string {
	t.Helper()
	dir, addr := t.TempDir(), rig.FreeAddr(t)
	config := readFile(t, "prometheus", "prometheus.yml")
	for example, ours := range map[string]string{"localhost:2019": target, "interval: 15s": "interval: 250ms"} {
		if !strings.Contains(config, example) {
			t.Fatalf("prometheus.yml has no %s", example)
		}
		config = strings.ReplaceAll(config, example, ours)
	}
	for name, text := range map[string]string{"prometheus.yml": config, "alerts.yml": readFile(t, "prometheus", "alerts.yml")} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out bytes.Buffer
	cmd := exec.CommandContext(context.Background(), tools.Prometheus(t, "prometheus"), "--log.level=warn",
		"--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Prometheus has logged\n%s", &out)
		}
	})
	return addr
}

// fetch reads what is at a URL.
func fetch(t *testing.T, address string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	return io.ReadAll(resp.Body)
}

// api asks Prometheus and decodes the data of the answer. It is an error of the
// test where Prometheus does not understand the question.
func api(t *testing.T, addr, path string, data any) error {
	t.Helper()
	text, err := fetch(t, "http://"+addr+"/api/v1/"+path)
	if err != nil {
		return err
	}
	answer := struct {
		Status string
		Error  string
		Data   any
	}{Data: data}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("%w: %s", err, text)
	}
	if answer.Status != "success" {
		t.Fatalf("%s: %s", path, answer.Error)
	}
	return nil
}

// vector is the answer to a query: values by the values of the labels.
type vector map[string]float64

func query(t *testing.T, addr, expr string) (vector, error) {
	t.Helper()
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := api(t, addr, "query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	v := make(vector)
	for _, sample := range data.Result {
		var labels []string
		for _, name := range slices.Sorted(maps.Keys(sample.Metric)) {
			labels = append(labels, sample.Metric[name])
		}
		value, err := strconv.ParseFloat(fmt.Sprint(sample.Value[1]), 64)
		if err != nil {
			t.Fatal(err)
		}
		v[strings.Join(labels, " ")] = value
	}
	return v, nil
}

// grafana puts in what Grafana does, with all jobs and instances selected.
var grafana = strings.NewReplacer("$job", ".*", "$instance", ".*", "$__rate_interval", "20s", "$__range", "1m")

// known is what the visitors are known to cause, by panel.
var known = map[string][]string{
	"Output tokens per second":     {""},
	"Failed responses":             {""},
	"Time to first token":          {""},
	"Gap between tokens":           {""},
	"How long a place is held":     {""},
	"Bytes":                        {""},
	"Slow clients":                 {"disconnected", "write_timeout"},
	"Turned away":                  {"queue_full"},
	"Outcomes":                     {"client_gone", "done", "first_token_timeout", "slow_client", "upstream_error", "upstream_truncated"},
	"Failures":                     {"first_token_timeout", "upstream_error", "upstream_truncated"},
	"Responses in this time range": {"anthropic-messages done", "openai-chat done", "openai-chat upstream_truncated", "unknown first_token_timeout"},
	"Calls of the store":           {"append", "begin", "beat"},
	"Bytes and events written":     {""},
	"Clients told to reconnect":    {"slow_client"},
	"Resumes":                      {"resumed", "unknown"},
}

// answers reports whether v is a good answer to a query of a panel.
func (v vector) answers(title string) bool {
	if len(v) == 0 {
		return false
	}
	for _, value := range v {
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return false
		}
	}
	for _, labels := range known[title] {
		if v[labels] <= 0 {
			return false
		}
	}
	return true
}

// A Prometheus that scrapes a loaded Caddy can answer every query of the
// dashboard, and evaluate every alert.
func TestQueries(t *testing.T) {
	c, admin := startCaddy(t)
	addr := startPrometheus(t, admin)
	load(t, c)
	deadline := time.Now().Add(patience)
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			v := ask(t, addr, grafana.Replace(target.Expr), deadline, func(v vector) bool { return v.answers(p.Title) })
			for _, labels := range slices.Sorted(maps.Keys(v)) {
				t.Logf("%-28s %s %-32s %.4g %s", p.Title, target.RefID, labels, v[labels], p.FieldConfig.Defaults.Unit)
			}
		}
	}
	checkRules(t, addr, deadline)
	checkNames(t, admin)
}

// ask asks until the answer is good.
func ask(t *testing.T, addr, expr string, deadline time.Time, good func(vector) bool) vector {
	t.Helper()
	for {
		v, err := query(t, addr, expr)
		if err == nil && good(v) {
			return v
		}
		if time.Now().After(deadline) {
			t.Errorf("the answer is %v, %v to\n%s", v, err, expr)
			return v
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}

// checkRules waits until every rule was evaluated, without an error.
func checkRules(t *testing.T, addr string, deadline time.Time) {
	t.Helper()
	type rule struct{ Name, Health, LastError string }
	for {
		var data struct{ Groups []struct{ Rules []rule } }
		err := api(t, addr, "rules", &data)
		if err == nil && len(data.Groups) == 1 && !slices.ContainsFunc(data.Groups[0].Rules, func(r rule) bool { return r.Health != "ok" }) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the rules are %+v, %v", data, err)
		}
		pause(t.Context(), 100*time.Millisecond)
	}
}

// checkNames checks that the dashboard shows every metric that there is, and
// that neither it nor the alerts name one that there is not.
func checkNames(t *testing.T, admin string) {
	t.Helper()
	text, err := fetch(t, "http://"+admin+"/metrics")
	if err != nil {
		t.Fatal(err)
	}
	exported := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?m)^# TYPE (caddy_llm_stream_\w+)`).FindAllSubmatch(text, -1) {
		exported[string(m[1])] = true
	}
	names := func(text string) map[string]bool {
		found := make(map[string]bool)
		for _, name := range regexp.MustCompile(`caddy_llm_stream_\w+`).FindAllString(text, -1) {
			if base := regexp.MustCompile(`_(bucket|count|sum)$`).ReplaceAllString(name, ""); exported[base] {
				name = base
			}
			found[name] = true
		}
		return found
	}
	shown := names(readFile(t, "grafana", "llm_stream.json"))
	for name := range exported {
		if !shown[name] {
			t.Errorf("the dashboard does not show %s", name)
		}
	}
	maps.Copy(shown, names(readFile(t, "prometheus", "alerts.yml")))
	for name := range shown {
		if !exported[name] {
			t.Errorf("there is no metric %s", name)
		}
	}
}
