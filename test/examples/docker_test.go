package examples_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// The image has the Caddy that the module is tested with, and what its build
// command says is what make xcaddy does.
func TestDockerfile(t *testing.T) {
	read := func(name string) string {
		t.Helper()
		content, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(content)
	}
	dockerfile := read("Dockerfile")
	tested := regexp.MustCompile(`caddyserver/caddy/v2 v(\S+)`).FindStringSubmatch(read("go.mod"))[1]
	if !strings.Contains(dockerfile, "ARG CADDY_VERSION="+tested+"\n") {
		t.Errorf("the Dockerfile has not Caddy %s, with which the module is tested", tested)
	}
	with := regexp.MustCompile(`--with (\S+)=`).FindStringSubmatch(dockerfile)[1]
	if !strings.Contains(read("Makefile"), "--with "+with+"=.") {
		t.Errorf("make xcaddy does not build with %s", with)
	}
}
