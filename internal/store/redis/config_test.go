package redis_test

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
)

func TestConfig(t *testing.T) {
	t.Parallel()
	c := redis.Config{URL: "rediss://127.0.0.1"}
	for _, line := range [][]string{
		{"username", "u"},
		{"password", "p"},
		{"prefix", "x:"},
		{"timeout", "2s"},
		{"lease", "5s"},
		{"ca", "ca.pem"},
		{"cert", "cert.pem", "key.pem"},
		{"server_name", "redis"},
		{"sentinel_username", "su"},
		{"sentinel_password", "sp"},
	} {
		if err := c.Set(line[0], line[1:]...); err != nil {
			t.Errorf("%q: %v", line, err)
		}
	}
	want := redis.Config{
		URL: "rediss://127.0.0.1", Username: "u", Password: "p", Prefix: "x:",
		Timeout: redis.Duration(2 * time.Second), Lease: redis.Duration(5 * time.Second),
		CA: "ca.pem", Cert: "cert.pem", Key: "key.pem", ServerName: "redis",
		SentinelUsername: "su", SentinelPassword: "sp",
	}
	if c != want {
		t.Errorf("got %+v, want %+v", c, want)
	}
	text, err := json.Marshal(c) //nolint:gosec // the password is not one
	if err != nil {
		t.Fatal(err)
	}
	var again redis.Config
	if err := json.Unmarshal(text, &again); err != nil || !reflect.DeepEqual(again, want) {
		t.Errorf("through JSON %+v, %v", again, err)
	}
}

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	for _, line := range [][]string{
		{"timeout"},
		{"timeout", "1s", "2s"},
		{"timeout", "soon"},
		{"timeout", "0s"},
		{"timeout", "-1s"},
		{"cert", "cert.pem"},
		{"pasword", "p"},
	} {
		var c redis.Config
		err := c.Set(line[0], line[1:]...)
		if err == nil || !strings.Contains(err.Error(), line[0]) {
			t.Errorf("%q: %v", line, err)
		}
	}
	for _, test := range []struct {
		config redis.Config
		want   string
	}{
		{redis.Config{}, "url"},
		{redis.Config{URL: "http://127.0.0.1"}, "scheme"},
		{redis.Config{URL: "redis://u:secret@127.0.0.1:port"}, "port"},
		{redis.Config{URL: "redis://127.0.0.1", Lease: redis.Duration(time.Millisecond)}, "lease"},
		{redis.Config{URL: "redis://127.0.0.1", ServerName: "redis"}, "rediss"},
		{redis.Config{URL: "rediss://127.0.0.1", CA: "no such file"}, "ca"},
		{redis.Config{URL: "rediss://127.0.0.1", CA: "config_test.go"}, "certificate"},
		{redis.Config{URL: "rediss://127.0.0.1", Cert: "no such file"}, "cert"},
	} {
		err := test.config.Validate()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want something about %s", test.config, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the password: %v", err)
		}
	}
}
