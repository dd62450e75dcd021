package llmstream_test

import (
	"net/http"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	http.DefaultClient.Transport = &http.Transport{DisableKeepAlives: true}
	os.Exit(m.Run())
}

func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s is\n%v\nnot\n%v", what, got, want)
	}
}
