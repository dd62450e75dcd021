package deliver

import (
	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/emit"
)

// Policy is what is done about a client that takes less than the model produces.
type Policy string

// The policies.
const (
	SlowBlock      Policy = "block"      // the upstream is read no further
	SlowCoalesce   Policy = "coalesce"   // what is pending is merged
	SlowDrop       Policy = "drop"       // what is pending is left out
	SlowDisconnect Policy = "disconnect" // the client is sent away
)

// Pace is how far a client may lag, and what becomes of one that lags further.
type Pace struct {
	Policy Policy
	Events int // how many events a client may lag; also maxLag bytes, or one event
	// Resumable says that a client that is sent away can come back.
	Resumable bool
}

// maxLag is how many bytes of text a client may lag, or one event.
const maxLag = 256 << 10

// lags reports whether a client that has once had everything lags too far.
func (p Pace) lags(batch *fanout.Batch) bool {
	return batch.Behind > p.Events || (batch.BehindBytes > maxLag && batch.Behind > 1)
}

// policyOf returns the policy for a client of a dialect. One that has no frame to
// tell of a gap must not have any.
func (p Pace) policyOf(dialect string) Policy {
	switch {
	case p.Policy != SlowDrop || dialect == emit.DialectText:
		return p.Policy
	case p.Resumable:
		return SlowCoalesce
	default:
		return SlowDisconnect
	}
}
