package redis_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/event"
	"github.com/caddy-llmstream/caddy-llmstream/internal/redistest"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/redis"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store/storetest"
)

// works lets a response go from one replica to another.
func works(t *testing.T, c redis.Config) {
	t.Helper()
	c.Timeout = redis.Duration(patient)
	var replicas []*store.Replica
	for range 2 {
		db, err := redis.Open(c)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = db.Close() }()
		replicas = append(replicas, store.Join(db, nil))
	}
	a, b := replicas[0], replicas[1]
	spec := &store.Spec{
		ID: fanout.NewID(), Access: fanout.Access{Scope: "h"}, Channel: "chat", Started: time.Now(), Keep: time.Minute,
		Call: fanout.Call{Key: fanout.NewID(), Request: "POST /"},
	}
	begun, err := a.Begin(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	log, copied := storetest.NewLog(), storetest.NewLog()
	w := a.Write(spec, begun.Ref, log, storetest.NewOwner())
	w.Announce()
	if _, _, err := b.Follow(t.Context(), spec.ID, spec.Access, copied); err != nil {
		t.Fatal(err)
	}
	log.Add(event.Event{Kind: event.Text, Text: []byte("a")})
	w.Appended(1, 1)
	log.Add(event.Event{Kind: event.Done, Result: &event.Result{Finish: event.FinishStop}})
	w.Ended()
	select {
	case <-copied.Over():
		if diff := copied.Diff(log); diff != "" || copied.Err() != nil {
			t.Errorf("%v: %s", copied.Err(), diff)
		}
	case <-time.After(hang):
		t.Error("hangs")
	}
	if _, err := a.Current(t.Context(), store.Channel{Access: spec.Access, Name: "chat"}); err == nil {
		t.Error("it is still current")
	}
	closeAll(t, a, b)
}

// The user of an ACL needs no more than this.
func TestACL(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	server.Do(append([]string{"ACL", "SETUSER", "llm", "on", ">secret"}, strings.Fields(acl)...)...)
	works(t, redis.Config{URL: server.URL(), Username: "llm", Password: "secret"})
	db, err := redis.Open(redis.Config{URL: server.URL(), Username: "llm", Password: "wrong"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Beat(t.Context(), "r", nil); err == nil || strings.Contains(err.Error(), "wrong:") {
		t.Errorf("with a wrong password: %v", err)
	}
}

const acl = "~llm:* &llm:* +@read +@write +@connection +@pubsub +@scripting -@dangerous +cluster|slots +cluster|shards"

func TestTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certificate(t, dir)
	tlsAddr := redistest.FreeAddr(t)
	_, port, _ := net.SplitHostPort(tlsAddr)
	path := func(name string) string { return filepath.Join(dir, name) }
	redistest.Start(t, "--tls-port", port, "--tls-cert-file", path("cert.pem"), "--tls-key-file", path("key.pem"),
		"--tls-ca-cert-file", path("cert.pem"))
	works(t, redis.Config{
		URL: "rediss://" + tlsAddr, CA: path("cert.pem"), Cert: path("cert.pem"), Key: path("key.pem"), ServerName: "redis.test",
	})
	db, err := redis.Open(redis.Config{URL: "rediss://" + tlsAddr, CA: path("cert.pem")})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	if _, err := db.Beat(t.Context(), "r", nil); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("with the name of another: %v", err)
	}
}

// certificate writes a key and a certificate for it that signs itself.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), DNSNames: []string{"redis.test"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{
		"cert.pem": {Type: "CERTIFICATE", Bytes: der}, "key.pem": {Type: "PRIVATE KEY", Bytes: secret},
	} {
		if err := os.WriteFile(filepath.Join(dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A failover by sentinels: what the old primary acknowledged and the new one does
// not have is written again.
func TestSentinel(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	host, port, _ := net.SplitHostPort(primary.Addr)
	second := redistest.Start(t, "--replicaof", host+" "+port)
	sentinel := redistest.FreeAddr(t)
	_, sentinelPort, _ := net.SplitHostPort(sentinel)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	text := "bind 127.0.0.1\nport " + sentinelPort + "\nsentinel monitor main " + host + " " + port + " 1\n" +
		"sentinel down-after-milliseconds main 500\nsentinel failover-timeout main 2000\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", config, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	for deadline := time.Now().Add(hang); !strings.Contains(second.Do("INFO", "replication"), "master_link_status:up"); {
		if time.Now().After(deadline) {
			t.Fatal("the replica does not come up")
		}
		time.Sleep(50 * time.Millisecond)
	}
	time.Sleep(2 * time.Second) // the sentinel learns of the replica from the primary's INFO
	url := "redis://" + sentinel + "?master_set=main"
	works(t, redis.Config{URL: url})
	s := &scene{T: t}
	s.a, s.b = store.Join(open(t, url), nil), store.Join(open(t, url), nil)
	for i := range 20 {
		s.produce(uint64(i), 600) //nolint:gosec // small
	}
	time.Sleep(2 * time.Second)
	primary.Stop()
	s.finish("the primary fails, a sentinel takes the replica")
	closeAll(t, s.a, s.b)
}
