package redis_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

func TestMain(m *testing.M) {
	// A client of rueidis' that could not connect sleeps a second before it ends.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}

// open returns a Store for a server.
func open(tb testing.TB, url string) *redis.Store {
	tb.Helper()
	s, err := redis.Open(redis.Config{URL: url, Timeout: redis.Duration(patient)})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, server.URL()) })
}

func TestConformanceInACluster(t *testing.T) {
	t.Parallel()
	servers := redistest.Cluster(t, 3)
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, servers[0].URL()) })
}
