package memory_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/memory"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(*testing.T) store.Store { return memory.New(7 * time.Second) })
}
