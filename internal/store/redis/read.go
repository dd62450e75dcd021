package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Find implements store.Store.
func (s *Store) Find(ctx context.Context, id string, as fanout.Access) (store.Meta, error) {
	var tombstone string
	meta, err := s.lookUp(ctx, id, &tombstone)
	switch {
	case errors.Is(err, store.ErrExpired) && !admits(tombstone, as):
		return store.Meta{}, store.ErrUnknown
	case err != nil:
		return store.Meta{}, err
	case meta.Access.Scope != as.Scope, meta.Access.Owner != "" && meta.Access.Owner != as.Owner:
		return store.Meta{}, store.ErrUnknown
	}
	return meta, nil
}

// find finds a response whoever asks.
func (s *Store) find(ctx context.Context, id string) (store.Meta, error) {
	var tombstone string
	return s.lookUp(ctx, id, &tombstone)
}

// lookUp reads a response's hash, and its tombstone in the same go.
func (s *Store) lookUp(ctx context.Context, id string, tombstone *string) (meta store.Meta, err error) {
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		answers := client.DoMulti(ctx,
			client.B().Hgetall().Key(s.keys.meta(id)).Build(),
			client.B().Get().Key(s.keys.tombstone(id)).Build())
		fields, err := answers[0].AsStrMap()
		if err != nil {
			return fmt.Errorf("redis store: %w", err)
		}
		if len(fields) > 0 {
			meta, err = parseMeta(id, fields)
			return err
		}
		*tombstone, err = answers[1].ToString()
		switch {
		case rueidis.IsRedisNil(err):
			return store.ErrUnknown
		case err != nil:
			return fmt.Errorf("redis store: %w", err)
		}
		return store.ErrExpired
	})
	return meta, err
}

// parseMeta reads a response's hash.
func parseMeta(id string, fields map[string]string) (store.Meta, error) {
	var failed error
	integer := func(name string) int64 {
		n, err := strconv.ParseInt(fields[name], 10, 54)
		if err != nil || n < 0 {
			failed = corrupt("field " + name)
			return 0
		}
		return n
	}
	meta := store.Meta{
		Ref: store.Ref{
			ID: id, Fence: integer(metaFence), Replica: fields[metaReplica], Claim: fields[metaClaim],
			Keep:   time.Duration(min(integer(metaKeep), maxKeep)) * time.Millisecond,
			Access: fanout.Access{Scope: fields[metaScope], Owner: fields[metaOwner]},
		},
		Dialect: fields[metaDialect],
		Started: time.UnixMilli(integer(metaStarted)),
		Last:    int(integer(metaLast)),
		Body:    fields[metaBody],
	}
	if name := fields[metaChannel]; name != "" {
		meta.Channel = store.Channel{Access: meta.Access, Name: name}
	}
	if about := fields[metaAbout]; about != "" {
		if err := json.Unmarshal([]byte(about), &meta.About); err != nil {
			return store.Meta{}, corrupt("field " + metaAbout)
		}
	}
	status, err := store.ParseStatus(fields[metaStatus])
	if failed == nil {
		failed = err
	}
	if failed != nil {
		return store.Meta{}, failed
	}
	meta.Status = status
	return meta, nil
}

// maxKeep bounds a number of milliseconds that is to be a time.Duration.
const maxKeep = int64(1<<63-1) / int64(time.Millisecond)

// Read implements store.Store.
func (s *Store) Read(ctx context.Context, id string, after int) (store.Page, error) {
	answer, err := s.exec(ctx, readScript,
		[]string{s.keys.meta(id), s.keys.stream(id), s.keys.compact(id), s.keys.tombstone(id)},
		[]string{strconv.Itoa(after)})
	if err != nil {
		return store.Page{}, err
	}
	return parsePage(answer)
}

func parsePage(answer []string) (page store.Page, err error) {
	if len(answer) < 2 {
		return page, corrupt("page")
	}
	if page.Last, err = number(answer[0]); err != nil {
		return page, err
	}
	if page.Status, err = store.ParseStatus(answer[1]); err != nil {
		return page, err
	}
	for _, batch := range answer[2:] {
		page.Batches = append(page.Batches, []byte(batch))
	}
	return page, nil
}

// Followed implements store.Store. In a cluster a node counts its own subscribers
// only.
func (s *Store) Followed(ctx context.Context, id string) (followed bool, err error) {
	topic := s.keys.events(id)
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		for _, node := range client.Nodes() {
			counts, err := node.Do(ctx, node.B().PubsubNumsub().Channel(topic).Build()).AsIntMap()
			if err != nil {
				return fmt.Errorf("redis store: %w", err)
			}
			followed = followed || counts[topic] > 0
		}
		return nil
	})
	return followed, err
}

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, id string, as fanout.Access) (store.Meta, error) {
	meta, err := s.Find(ctx, id, as)
	if err != nil || meta.Status != fanout.InProgress {
		return meta, err
	}
	_, err = s.exec(ctx, cancelScript, []string{s.keys.meta(id)}, []string{s.keys.replica(""), id})
	return meta, err
}
