package sdk_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
)

// columns of the table, in this order.
var columns = []string{"text", "tools", "reasoning", "usage", "error", "retry", "heartbeat", "cut"}

// matrix is the table of what holds for which SDK and dialect.
type matrix struct {
	mu    sync.Mutex
	rows  []string
	cells map[[2]string]bool
	words map[[2]string]string
}

// table is what all tests together have found.
var table = &matrix{cells: map[[2]string]bool{}, words: map[[2]string]string{}}

// TestMain prints the table, which docs/wire.md has, after all tests.
func TestMain(m *testing.M) {
	code := m.Run()
	if goProgram.dir != "" {
		_ = os.RemoveAll(goProgram.dir)
	}
	if testing.Verbose() {
		fmt.Println(table)
	}
	os.Exit(code)
}

func (m *matrix) row(row string) {
	if !slices.Contains(m.rows, row) {
		m.rows = append(m.rows, row)
	}
}

// add notes the outcome of a test in some columns of a row.
func (m *matrix) add(row string, in []string, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row(row)
	for _, column := range in {
		key := [2]string{row, column}
		before, seen := m.cells[key]
		m.cells[key] = ok && (before || !seen)
	}
}

// say puts words into a cell where there is nothing to be tested.
func (m *matrix) say(row, column, word string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.row(row)
	m.words[[2]string{row, column}] = word
}

// String returns the table as Markdown.
func (m *matrix) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	fmt.Fprintf(&b, "| SDK | dialect | %s |\n|---|---|%s\n", strings.Join(columns, " | "), strings.Repeat("---|", len(columns)))
	slices.Sort(m.rows)
	for _, row := range m.rows {
		fmt.Fprintf(&b, "| %s |", row)
		for _, column := range columns {
			key := [2]string{row, column}
			word := "yes"
			ok, seen := m.cells[key]
			switch {
			case seen && !ok:
				word = "NO"
			case m.words[key] != "":
				word = m.words[key]
			case !seen:
				word = "–"
			}
			fmt.Fprintf(&b, " %s |", word)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
