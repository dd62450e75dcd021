package redis

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// How long things live in Redis.
const (
	remember    = 24 * time.Hour // an id after its response is no longer kept
	liveFor     = 24 * time.Hour // a response from its beginning, where nothing ends it
	claimFor    = 24 * time.Hour // an idempotency key after it was last used
	channelMore = time.Hour      // a channel after what it tells of is no longer kept
)

// Store is a store.Store in Redis.
type Store struct {
	keys    keys
	timeout time.Duration
	lease   time.Duration
	connect *connector
	hub     *hub
	calls   sync.WaitGroup

	mu     sync.Mutex
	closed bool
}

// Open returns a Store. The error is about the Config: Redis is connected to when
// it is first needed, and need not be there yet.
func Open(c Config) (*Store, error) {
	option, err := c.options()
	if err != nil {
		return nil, err
	}
	prefix := c.Prefix
	if prefix == "" {
		prefix = defaultPrefix
	}
	connect := &connector{option: option}
	return &Store{
		keys: keys(prefix), timeout: c.Timeout.or(defaultTimeout), lease: c.Lease.or(defaultLease),
		connect: connect, hub: newHub(connect),
	}, nil
}

// Close implements store.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	closed := s.closed
	s.closed = true
	s.mu.Unlock()
	if closed {
		return nil
	}
	s.hub.close()
	s.calls.Wait()
	s.connect.close()
	return nil
}

// call runs f with a client and a deadline, while the Store is open.
func (s *Store) call(ctx context.Context, f func(ctx context.Context, client rueidis.Client) error) error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return store.ErrClosed
	}
	s.calls.Add(1)
	s.mu.Unlock()
	defer s.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	client, err := s.connect.get(ctx)
	if err != nil {
		return err
	}
	return f(ctx, client)
}

// exec runs a script and returns what comes after "ok" in its answer.
func (s *Store) exec(ctx context.Context, script *rueidis.Lua, keys, args []string) (answer []string, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		answer, err = run(ctx, client, script, keys, args)
		return err
	})
	return answer, err
}

// run runs a script.
func run(ctx context.Context, client rueidis.Client, script *rueidis.Lua, keys, args []string) ([]string, error) {
	list, err := script.Exec(ctx, client, keys, args).ToArray()
	if err != nil {
		return nil, fmt.Errorf("redis store: %w", err)
	}
	answer := make([]string, len(list))
	for i := range list {
		if n, err := list[i].ToInt64(); err == nil {
			answer[i] = strconv.FormatInt(n, 10)
		} else if answer[i], err = list[i].ToString(); err != nil {
			return nil, corrupt("a list in a list")
		}
	}
	return parseAnswer(answer)
}

// parseAnswer returns what comes after the first word of an answer, which with
// ErrGap says how far the log goes.
func parseAnswer(answer []string) ([]string, error) {
	if len(answer) == 0 {
		return nil, corrupt("empty answer")
	}
	switch answer[0] {
	case answerOK:
		return answer[1:], nil
	case answerUnknown:
		return nil, store.ErrUnknown
	case answerExpired:
		return nil, store.ErrExpired
	case answerFenced:
		return nil, store.ErrFenced
	case answerGap:
		return answer[1:], store.ErrGap
	}
	return nil, corrupt("unknown answer")
}

func corrupt(what string) error { return fmt.Errorf("redis store: %w: %s", store.ErrCorrupt, what) }

// number reads a number that is not negative and fits an index.
func number(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 {
		return 0, corrupt("not a number")
	}
	return int(n), nil
}

func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(1, d.Milliseconds()), 10)
}

// together reports whether keys of different slots may be used in one script.
func together(client rueidis.Client) bool { return client.Mode() != rueidis.ClientModeCluster }

// Interface guards
var _ store.Store = (*Store)(nil)
