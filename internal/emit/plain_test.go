package emit_test

import (
	"net/http"
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestPlain(t *testing.T) {
	got := encode(emit.NewPlain(responseID),
		reasoning("hm"), text("a\"b\\\n"), ofChoice(1, text("x")), call(0, "a", "f", "{}"), text("你🙂\x00"), refusal("no"),
		done(event.Result{}))
	if want := "a\"b\\\n你🙂\x00no"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := encode(emit.NewPlain(responseID), failed(504, event.CodeTotalTimeout, "m", "")); got != "" {
		t.Errorf("an error became %q", got)
	}
}

func TestPlainHeader(t *testing.T) {
	h := http.Header{}
	emit.NewPlain(responseID).Header(h)
	for name, want := range map[string]string{
		"Content-Type": "text/plain; charset=utf-8", "X-Content-Type-Options": "nosniff",
		"Cache-Control": "no-cache, no-transform", "X-Response-Id": responseID,
	} {
		if got := h.Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}

func BenchmarkPlain(b *testing.B) {
	benchmarkDelta(b, emit.NewPlain(responseID), text(" \"world\""))
}
