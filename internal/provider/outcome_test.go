package provider

import (
	"testing"

	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
)

func TestFinishIsNotTakenBack(t *testing.T) {
	t.Parallel()
	var o outcome
	for _, word := range []string{"", "length", "stop", ""} {
		o.take(&event.Event{Kind: event.Finish, Choice: 2, Finish: word})
	}
	if r := o.result(); !o.finished() || r.ProviderFinish != "stop" || r.Choices != nil {
		t.Errorf("finished: %v, %+v", o.finished(), r)
	}
}
