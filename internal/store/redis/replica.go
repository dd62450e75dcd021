package redis

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Subscribe implements store.Store.
func (s *Store) Subscribe(ctx context.Context, t store.Topic, deliver func(store.Message)) (store.Subscription, error) {
	limited, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	sub, err := s.hub.subscribe(limited, s.keys.topic(t), t.Kind, deliver)
	if err != nil {
		return nil, err
	}
	if t.Kind == store.ResponseTopic {
		err = s.follow(ctx, t.Name)
	}
	if err != nil {
		sub.Close()
		return nil, err
	}
	return sub, nil
}

// follow leaves word in a cluster that a response is followed: there PUBLISH
// counts only the subscribers of the node that it was sent to.
func (s *Store) follow(ctx context.Context, id string) error {
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		if together(client) {
			return nil
		}
		_, err := run(ctx, client, followScript, []string{s.keys.meta(id)}, nil)
		return err
	})
}

// Beat implements store.Store.
func (s *Store) Beat(ctx context.Context, replica string, others []string) (beat store.Beat, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		commands := make([]rueidis.Completed, 0, 1+len(others))
		commands = append(commands,
			client.B().Set().Key(s.keys.lease(replica)).Value("1").Get().PxMilliseconds(s.lease.Milliseconds()).Build())
		for _, other := range others {
			commands = append(commands, client.B().Exists().Key(s.keys.lease(other)).Build())
		}
		answers := client.DoMulti(ctx, commands...)
		err := answers[0].Error()
		beat.Lapsed = rueidis.IsRedisNil(err)
		if err != nil && !beat.Lapsed {
			return fmt.Errorf("redis store: %w", err)
		}
		for i, answer := range answers[1:] {
			n, err := answer.AsInt64()
			if err != nil {
				return fmt.Errorf("redis store: %w", err)
			}
			if n == 0 {
				beat.Missing = append(beat.Missing, others[i])
			}
		}
		return nil
	})
	return beat, err
}

// Lease implements store.Store.
func (s *Store) Lease() time.Duration { return s.lease }

// Leave implements store.Store.
func (s *Store) Leave(ctx context.Context, replica string) error {
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		return client.Do(ctx, client.B().Del().Key(s.keys.lease(replica)).Build()).Error()
	})
}
