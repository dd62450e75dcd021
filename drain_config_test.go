package llmstream

import (
	"strings"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
)

// Where several options of drain are wrong, the first of them in the order of
// the documentation is named, every time.
func TestDrainNamesTheFirstWrongOption(t *testing.T) {
	t.Parallel()
	const wrong = caddy.Duration(-time.Second)
	for want, d := range map[string]Drain{
		"deadline": {Deadline: wrong, Spread: wrong, Retry: wrong},
		"spread":   {Spread: wrong, Retry: wrong},
		"retry":    {Retry: wrong},
	} {
		for range 20 { // it was at random
			if err := d.validate(); err == nil || !strings.HasPrefix(err.Error(), want+":") {
				t.Fatalf("%+v: %v", d, err)
			}
		}
	}
}
