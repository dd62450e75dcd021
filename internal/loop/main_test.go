package loop_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if addr := os.Getenv(readersOf); addr != "" {
		read(addr)
		return
	}
	// certmagic keeps a lock fresh a while after Caddy has stopped.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/caddyserver/certmagic.keepLockfileFresh"))
}
