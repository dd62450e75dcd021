package redis

import (
	"errors"
	"strings"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// FuzzAnswers reads what a server may answer: anything. The parts of an answer
// are separated by NUL.
func FuzzAnswers(f *testing.F) {
	id := fanout.NewID()
	for _, seed := range []string{
		"ok\x001\x00in_progress\x00batch",
		"ok\x003\x00\x001", "gap\x005", "fenced", "unknown", "expired", "ok",
		"ok\x00epoch\x002\x001\x002\x00s " + id + " 5\x00t " + id + " 1 2\x00r" + id + "\x001\x00n\x002",
		"f\x001\x00l\x002\x00s\x00done\x00t\x0012\x00k\x005\x00a\x00{\"m\":\"x\"}\x00n\x00chat",
	} {
		f.Add(seed, "epoch", "1")
	}
	f.Fuzz(func(t *testing.T, text, epoch, had string) {
		parts := strings.Split(text, "\x00")
		answer, err := parseAnswer(parts)
		if err != nil && !errors.Is(err, store.ErrGap) && !errors.Is(err, store.ErrUnknown) &&
			!errors.Is(err, store.ErrExpired) && !errors.Is(err, store.ErrFenced) && !errors.Is(err, store.ErrCorrupt) {
			t.Fatal(err)
		}
		var ack store.Ack
		if err := parseAck(answer, &ack); err == nil && ack.Last < 0 {
			t.Fatalf("%+v", ack)
		}
		if page, err := parsePage(answer); err == nil && page.Last < 0 {
			t.Fatalf("%+v", page)
		}
		page, err := parseChannel(answer, epoch, had)
		if err == nil {
			for _, n := range page.Notices {
				if _, _, err := n.Position.Parse(); err != nil && !strings.Contains(answer[0], ".") {
					t.Fatalf("%+v: %v", n, err)
				}
			}
		}
		fields := make(map[string]string)
		for i := 0; i+1 < len(parts); i += 2 {
			fields[parts[i]] = parts[i+1]
		}
		if meta, err := parseMeta(id, fields); err == nil && (meta.Keep < 0 || meta.Last < 0 || meta.Fence < 0) {
			t.Fatalf("%+v", meta)
		}
		for kind := range store.ReplicaTopic + 1 {
			_ = parseMessage([]byte(text), kind)
		}
	})
}
