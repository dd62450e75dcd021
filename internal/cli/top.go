package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/term"
)

// Admin asks the admin API of a Caddy. The answer is one with status 2xx.
type Admin func(method, path string) (*http.Response, error)

// Top is what `caddy llm-stream top` is told.
type Top struct {
	Ask   Admin
	Every time.Duration // from one look to the next
}

// running is one line of GET /llm_stream/streams.
type running struct {
	ID         string `json:"id"`
	Format     string `json:"format"`
	Model      string `json:"model"`
	Emit       string `json:"emit"`
	Channel    string `json:"channel"`
	AgeMS      int64  `json:"age_ms"`
	Events     int64  `json:"events"`
	Followers  int    `json:"followers"`
	SlowestLag int64  `json:"slowest_lag"`
}

// list asks what runs.
func (t *Top) list() ([]running, error) {
	resp, err := t.Ask(http.MethodGet, "/llm_stream/streams")
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	var list []running
	if err := json.NewDecoder(resp.Body).Decode(&list); err != nil {
		return nil, fmt.Errorf("reading what runs: %w", err)
	}
	return list, nil
}

// stop cancels a response.
func (t *Top) stop(id string) error {
	resp, err := t.Ask(http.MethodPost, "/llm_stream/streams/"+id+"/cancel")
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Run shows what runs: once where the output is no terminal, else again and again
// until a key or ctx ends it.
func (t *Top) Run(ctx context.Context, terminal *Terminal) error {
	if !terminal.Live || !term.IsTerminal(int(terminal.In.Fd())) {
		list, err := t.list()
		if err != nil {
			return err
		}
		_, err = io.WriteString(terminal.Out, table(list))
		return err
	}
	before, err := term.MakeRaw(int(terminal.In.Fd()))
	if err != nil {
		return fmt.Errorf("the terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(terminal.In.Fd()), before) }()
	keys := make(chan byte)
	go func() { // ends with the process: a read of a terminal cannot be stopped
		var key [1]byte
		for {
			if _, err := terminal.In.Read(key[:]); err != nil {
				close(keys)
				return
			}
			keys <- key[0]
		}
	}()
	return t.watch(ctx, terminal.Out, keys)
}

// watch redraws the screen and obeys keys.
func (t *Top) watch(ctx context.Context, out io.Writer, keys <-chan byte) error {
	s := screen{top: t}
	tick := time.NewTicker(t.Every)
	defer tick.Stop()
	for {
		s.look()
		if _, err := io.WriteString(out, s.draw()); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case key, ok := <-keys:
			if !ok || s.press(key) {
				_, err := io.WriteString(out, "\r\n")
				return err
			}
		}
	}
}

// screen is what top shows, and which line is chosen: by its id, since the others
// move.
type screen struct {
	top    *Top
	list   []running
	chosen string
	said   string
}

func (s *screen) look() {
	list, err := s.top.list()
	if err != nil {
		s.said = err.Error()
		return
	}
	s.list = list
	if s.at() < 0 {
		s.chosen = ""
		if len(list) > 0 {
			s.chosen = list[0].ID
		}
	}
}

// at is the place of the chosen line, -1 where there is none.
func (s *screen) at() int {
	for i := range s.list {
		if s.list[i].ID == s.chosen {
			return i
		}
	}
	return -1
}

const ctrlC = 3

// press obeys a key, and reports whether it is the last.
func (s *screen) press(key byte) (quit bool) {
	s.said = ""
	switch key {
	case 'q', ctrlC:
		return true
	case 'j', 'B': // B is the last byte of the arrow's sequence
		s.choose(s.at() + 1)
	case 'k', 'A':
		s.choose(s.at() - 1)
	case 'x':
		if s.chosen == "" {
			return false
		}
		s.said = "stopped " + s.chosen
		if err := s.top.stop(s.chosen); err != nil {
			s.said = err.Error()
		}
	}
	return false
}

func (s *screen) choose(i int) {
	if i >= 0 && i < len(s.list) {
		s.chosen = s.list[i].ID
	}
}

const (
	clearScreen = "\x1b[H\x1b[2J"
	reverse     = "\x1b[7m"
)

// draw returns the whole screen.
func (s *screen) draw() string {
	lines := strings.Split(strings.TrimSuffix(table(s.list), "\n"), "\n")
	if i := s.at(); i >= 0 {
		lines[i+1] = reverse + lines[i+1] + plain
	}
	head := fmt.Sprintf("%d running · j, k choose · x stops it · q ends", len(s.list))
	return clearScreen + head + "\r\n\r\n" + strings.Join(lines, "\r\n") + "\r\n\r\n" + s.said
}

// table returns what runs as a table, the oldest first. What a backend or a
// client has named is shown without control characters.
func table(list []running) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "ID\tAGE\tEVENTS\tFOLLOWERS\tLAG\tEMIT\tFORMAT\tMODEL\tCHANNEL")
	for i := range list {
		r := &list[i]
		_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", r.ID, time.Duration(r.AgeMS)*time.Millisecond, r.Events,
			r.Followers, r.SlowestLag, r.Emit, word(r.Format), word(r.Model), word(r.Channel))
	}
	_ = w.Flush()
	return b.String()
}

// word returns a name in one column of a table.
func word(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		return printable(r)
	}, s)
	if s == "" {
		return "-"
	}
	return s
}
