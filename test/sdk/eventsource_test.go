package sdk_test

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/llmsim"
)

// What a page asks its backend for, and once more with a tool.
const (
	plainRequest = `{"stream":true,"model":"sim-1"}`
	toolRequest  = `{"stream":true,"model":"sim-1","tools":[{"type":"function","function":{"name":"get_weather"}}]}`
)

// page is a run of an EventSource on a route.
type page struct {
	scenario
	way    string // page or forgetful
	route  string
	once   bool // only the first connection is cut
	closed int  // the status with which the source gives up
}

func pages() []page {
	var list []page
	for _, sc := range scenarios {
		switch {
		case sc.retries > 0 || sc.maxTokens > 0 || sc.cut:
		case sc.beat:
			list = append(list, page{scenario: sc, way: "page", route: "text-beat"})
		default:
			list = append(list, page{scenario: sc, way: "page", route: "text", closed: sc.status})
		}
	}
	// long enough that a stream goes on after the cut
	whole := llmsim.Options{Tokens: tokens}
	columns := []string{"retry"}
	return append(list,
		page{
			scenario: scenario{name: "cut off and resumed", columns: []string{"cut", "retry"}, options: whole},
			way:      "page", route: "resumable", once: true,
		},
		page{
			scenario: scenario{name: "204 stops it", columns: columns, options: whole},
			way:      "forgetful", route: "resumable", closed: http.StatusNoContent,
		},
		page{
			scenario: scenario{name: "410 is final", columns: columns, options: whole},
			way:      "forgetful", route: "text", closed: http.StatusGone,
		},
		page{
			scenario: scenario{name: "cut off without resume", columns: []string{"cut"}, options: whole, cut: true},
			way:      "page", route: "text", closed: http.StatusGone,
		},
	)
}

// An EventSource reads the text dialect, comes back after a cut by itself and
// goes on where it was, and never starts a second generation.
func TestEventSource(t *testing.T) {
	s := newStage(t)
	once := newCutter(t, s.caddy.Addr, cutAfter, 1)
	c := client{
		program: npm(t, "eventsource", "eventsource.mjs"), dialect: "text", from: []string{"openai"},
		streamError: "error event", statusless: true, codes: true,
	}.words("stop", "length", "tool_calls", "content_filter")
	list := pages()
	runs := make([]run, len(list))
	backends := make([]*answer, len(list))
	for i, p := range list {
		request := plainRequest
		if p.tools {
			request = toolRequest
		}
		backends[i] = s.backend.add(asking(request, p.handler("openai")))
		addr := s.caddy.Addr
		switch {
		case p.once:
			addr = once.addr
		case p.cut:
			addr = s.cutter.addr
		}
		runs[i] = run{
			Name: p.name, Way: p.way,
			URL: "http://" + addr + "/" + p.route + "/" + backends[i].key + "/v1/chat/completions",
		}
	}
	outcomes := c.do(t, runs)
	for i, p := range list {
		ok := t.Run(p.name, func(t *testing.T) {
			got := outcomes[p.name]
			p.check(t, &c, &got, backends[i].calls.Load())
		})
		table.add(c.row(), p.columns, ok)
	}
	table.say(c.row(), "retry", "resumes")
}

func (p *page) check(t *testing.T, c *client, got *outcome, calls int64) {
	t.Helper()
	equal(t, "status of the end", got.Closed, p.closed)
	equal(t, "generations", calls, 1)
	if p.status != 0 {
		// an EventSource tells a page nothing but the status
		if got.Error == nil || got.Error.Status != p.closed {
			t.Errorf("error %+v", got.Error)
		}
		return
	}
	checkIDs(t, got.IDs)
	if p.once && got.Connections < 2 {
		t.Error("the connection was not cut")
	}
	p.scenario.check(t, c, got, calls)
}

// checkIDs checks that nothing was lost and nothing came twice.
func checkIDs(t *testing.T, ids []string) {
	t.Helper()
	if len(ids) == 0 {
		t.Fatal("no event has come")
	}
	response, _, _ := strings.Cut(ids[0], ":")
	last := 0
	for _, id := range ids {
		index, err := strconv.Atoi(strings.TrimPrefix(id, response+":"))
		if err != nil || index <= last {
			t.Fatalf("id %s after %d in %s", id, last, slices.Compact(slices.Clone(ids)))
		}
		last = index
	}
}
