//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"
)

// result is the figures of one row in one run.
type result struct {
	memory         float64 // KB for each client
	growth         float64 // MB while measuring
	cpu            float64 // µs for each token
	rate           float64 // tokens/s of all clients
	p50, p99       float64 // ms from a token's sending to its receipt
	ttft50, ttft99 float64 // ms from a request to its first token
	checked        int     // tokens, over the whole run
	slow           int     // clients that our handler took for slow
	live           int64   // bytes that heap and stacks grew by while clients stalled
	faults
	reasons []string
}

// column is one of the table's. Its value is 0 where a row has none.
type column struct {
	name   string
	value  func(*result) float64
	format string
	// ratio says that the column is worth comparing with plain Caddy's.
	ratio bool
	// pace says that the figure depends on how much is sent, so that loads of
	// different pace are not compared in it.
	pace bool
}

var columns = []column{
	{"KB/client", func(r *result) float64 { return r.memory }, "%.1f", true, false},
	{"growth MB", func(r *result) float64 { return r.growth }, "%.1f", false, false},
	{"CPU µs/token", func(r *result) float64 { return r.cpu }, "%.2f", true, false},
	{"tokens/s", func(r *result) float64 { return r.rate }, "%.0f", true, true},
	{"p50 ms", func(r *result) float64 { return r.p50 }, "%.2f", true, true},
	{"p99 ms", func(r *result) float64 { return r.p99 }, "%.2f", true, true},
	{"TTFT p50", func(r *result) float64 { return r.ttft50 }, "%.2f", true, true},
	{"TTFT p99", func(r *result) float64 { return r.ttft99 }, "%.2f", true, true},
}

// median returns the median of a column over a row's runs.
func (r *row) median(c *column) float64 {
	values := make([]float64, len(r.results))
	for i := range r.results {
		values[i] = c.value(&r.results[i])
	}
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// faults returns those of all runs: a fault has no median.
func (r *row) faults() (f faults) {
	for i := range r.results {
		f.add(r.results[i].faults)
	}
	return f
}

// base returns the row that a row is compared with, or nil.
func base(rows []row, r *row) *row {
	for i := range rows {
		if rows[i].section == r.section && rows[i].subject.name == plain.name {
			return &rows[i]
		}
	}
	for i := range rows {
		if rows[i].subject.name == plain.name && rows[i].section.load.perSecond > 0 {
			return &rows[i]
		}
	}
	return nil
}

// printReport prints the figures, the ratios, and what was wrong.
func printReport(w *strings.Builder, rows []row) {
	w.WriteString("|  | clients")
	for i := range columns {
		w.WriteString(" | " + columns[i].name)
	}
	w.WriteString(" | lost | repeated | disordered | failed |\n")
	printRule(w, len(columns)+6)
	for i := range rows {
		r := &rows[i]
		fmt.Fprintf(w, "| %s: %s | %s", r.section.name, r.subject.name, describe(&r.section.load))
		for j := range columns {
			w.WriteString(" | " + figure(&columns[j], r))
		}
		f := r.faults()
		fmt.Fprintf(w, " | %d | %d | %d | %d |\n", f.lost, f.repeated, f.disordered, f.failed)
	}
	printRatios(w, rows)
	printNotes(w, rows)
}

// figure returns a cell, with a dash for what a row has not.
func figure(c *column, r *row) string {
	value := r.median(c)
	if value == 0 {
		return "–"
	}
	return fmt.Sprintf(c.format, value)
}

func describe(l *load) string {
	if l.perSecond == 0 {
		return fmt.Sprintf("%d, no pause", l.clients)
	}
	return fmt.Sprintf("%d × %d/s", l.clients, l.perSecond)
}

func printRatios(w *strings.Builder, rows []row) {
	w.WriteString("\n| ÷ plain Caddy")
	n := 1
	for i := range columns {
		if columns[i].ratio {
			w.WriteString(" | " + columns[i].name)
			n++
		}
	}
	w.WriteString(" |\n")
	printRule(w, n)
	for i := range rows {
		r := &rows[i]
		b := base(rows, r)
		if b == nil || b == r || r.subject.name == direct.name {
			continue
		}
		fmt.Fprintf(w, "| %s: %s", r.section.name, r.subject.name)
		for j := range columns {
			if c := &columns[j]; c.ratio {
				w.WriteString(" | " + ratio(c, r, b))
			}
		}
		w.WriteString(" |\n")
	}
}

func ratio(c *column, r, b *row) string {
	x, y := r.median(c), b.median(c)
	samePace := r.section.load.perSecond == b.section.load.perSecond
	if x == 0 || y == 0 || c.pace && !samePace {
		return "–"
	}
	return fmt.Sprintf("%.2f", x/y)
}

// printNotes prints what a table has no room for.
func printNotes(w *strings.Builder, rows []row) {
	w.WriteString("\n")
	for i := range rows {
		r := &rows[i]
		for j := range r.results {
			res := &r.results[j]
			if l := &r.section.load; l.stall {
				fmt.Fprintf(w, "%s: %s: %d clients stalled, of which the proxy took %d for slow; "+
					"meanwhile its heap and stacks, after a collection, grew by %d KB.\n",
					r.section.name, r.subject.name, l.clients/oneOf, res.slow, res.live/1000)
			}
			for _, reason := range res.reasons {
				fmt.Fprintf(w, "%s: %s: failed: %s\n", r.section.name, r.subject.name, reason)
			}
		}
	}
	tokens, sum := 0, faults{}
	for i := range rows {
		f := rows[i].faults()
		sum.add(f)
		for j := range rows[i].results {
			tokens += rows[i].results[j].checked
		}
	}
	if sum.none() {
		fmt.Fprintf(w, "All %d tokens came once and in order, and all streams to their end.\n", tokens)
	}
}

// printRule prints the line below a table's head: the first column is text.
func printRule(w *strings.Builder, n int) {
	fmt.Fprintf(w, "|---|%s\n", strings.Repeat("--:|", n-1))
}
