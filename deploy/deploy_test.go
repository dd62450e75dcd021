// Package deploy_test shows that what lies in this folder works: promtool
// accepts the rules and tries them, and a real Prometheus that scrapes a loaded
// Caddy has an answer to every query of the dashboard.
package deploy_test

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/tools"
)

// promtool runs promtool in the folder of the Prometheus files.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, tools.Prometheus(t, "promtool"), args...)
	cmd.Dir = "prometheus"
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// lookPath finds a program of Prometheus.
func readFile(t *testing.T, name ...string) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(name...))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The rules are valid, and each alert fires where it should and nowhere else.
func TestAlerts(t *testing.T) {
	promtool(t, "check", "config", "prometheus.yml")
	promtool(t, "check", "rules", "alerts.yml")
	promtool(t, "test", "rules", "alerts_test.yml")

	tests := readFile(t, "prometheus", "alerts_test.yml")
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(readFile(t, "prometheus", "alerts.yml"), -1)
	if len(alerts) == 0 {
		t.Fatal("alerts.yml has no alerts")
	}
	for _, alert := range alerts {
		if !strings.Contains(tests, `alertname="`+alert[1]+`", alertstate="firing"`) {
			t.Errorf("no test in which %s fires", alert[1])
		}
	}
}

// dashboard is what the tests read of a Grafana dashboard.
type dashboard struct {
	Templating struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID          int
	Type        string
	Title       string
	Description string
	GridPos     struct{ X, Y, W, H int }
	Datasource  struct{ UID string }
	FieldConfig struct {
		Defaults struct{ Unit string }
	}
	Targets []struct {
		RefID      string
		Expr       string
		Datasource struct{ UID string }
	}
}

func readDashboard(t *testing.T) *dashboard {
	t.Helper()
	d := new(dashboard)
	if err := json.Unmarshal([]byte(readFile(t, "grafana", "llm_stream.json")), d); err != nil {
		t.Fatal(err)
	}
	return d
}

// The dashboard is one that Grafana shows as it was meant, with any data source.
func TestDashboardIsWhole(t *testing.T) {
	d := readDashboard(t)
	if v := d.Templating.List; len(v) == 0 || v[0].Name != "datasource" || v[0].Type != "datasource" {
		t.Errorf("the first variable is not the data source: %+v", v)
	}
	ids := make(map[int]bool)
	taken := make(map[[2]int]string)
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the id %d is another panel's", p.Title, p.ID)
		}
		ids[p.ID] = true
		checkPlace(t, &p, taken)
		if p.Type == "row" || p.Type == "text" {
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %d lacks title, description, unit or queries: %+v", p.ID, p)
		}
		if p.Datasource.UID != "${datasource}" {
			t.Errorf("%s: the data source is %s", p.Title, p.Datasource.UID)
		}
		refs := make(map[string]bool)
		for _, q := range p.Targets {
			if refs[q.RefID] || q.Datasource.UID != "${datasource}" {
				t.Errorf("%s: %s is there twice, or is of the data source %q", p.Title, q.RefID, q.Datasource.UID)
			}
			refs[q.RefID] = true
		}
	}
}

// checkPlace checks that a panel lies in Grafana's 24 columns and on no other.
func checkPlace(t *testing.T, p *panel, taken map[[2]int]string) {
	t.Helper()
	g := p.GridPos
	if g.W <= 0 || g.H <= 0 || g.X < 0 || g.X+g.W > 24 {
		t.Errorf("%s lies outside: %+v", p.Title, g)
	}
	for x := g.X; x < g.X+g.W; x++ {
		for y := g.Y; y < g.Y+g.H; y++ {
			at := [2]int{x, y}
			if other, ok := taken[at]; ok {
				t.Fatalf("%s lies on %s", p.Title, other)
			}
			taken[at] = p.Title
		}
	}
}
