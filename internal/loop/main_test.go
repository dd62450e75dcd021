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
	goleak.VerifyTestMain(m)
}
