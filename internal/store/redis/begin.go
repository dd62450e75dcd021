package redis

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Begin implements store.Store.
func (s *Store) Begin(ctx context.Context, spec *store.Spec) (store.Begun, error) {
	ref := store.Ref{
		ID: spec.ID, Replica: spec.Replica, Keep: spec.Keep, Access: spec.Access,
	}
	if spec.Channel != "" {
		ref.Channel = store.Channel{Access: spec.Access, Name: spec.Channel}
	}
	if spec.Call.Key != "" {
		ref.Claim = digest(spec.Call.Key) + " " + digest(spec.Call.Request)
	}
	answer, err := s.exec(ctx, beginScript, []string{s.keys.meta(spec.ID), s.keys.stream(spec.ID)}, []string{
		spec.Replica, milliseconds(liveFor),
		metaScope, spec.Scope, metaOwner, spec.Owner, metaChannel, spec.Channel, metaDialect, spec.Dialect,
		metaStarted, strconv.FormatInt(spec.Started.UnixMilli(), 10), metaKeep, milliseconds(spec.Keep),
		metaClaim, ref.Claim, metaBody, bodyOf(spec.Call),
	})
	if err != nil {
		return store.Begun{}, err
	}
	if len(answer) != 2 {
		return store.Begun{}, corrupt("begin")
	}
	fence, err := number(answer[0])
	last, err2 := number(answer[1])
	if err = errors.Join(err, err2); err != nil {
		return store.Begun{}, err
	}
	ref.Fence = int64(fence)
	if ref.Claim != "" {
		if found, err := s.claim(ctx, ref, spec); found != nil || err != nil {
			// Nobody knows the id yet, and it is forgotten in time anyway.
			_ = s.Discard(context.WithoutCancel(ctx), ref)
			return store.Begun{Found: found}, err
		}
	}
	return store.Begun{Ref: ref, Last: last}, nil
}

func bodyOf(call fanout.Call) string {
	if call.Key == "" {
		return ""
	}
	return digest(call.Body)
}

// claim takes the call for a response that exists already, so that whoever finds
// the claim finds the response. It returns the response that has the call.
func (s *Store) claim(ctx context.Context, ref store.Ref, spec *store.Spec) (*store.Meta, error) {
	stale := ""
	for {
		key, request, _ := strings.Cut(ref.Claim, " ")
		answer, err := s.exec(ctx, claimScript, []string{s.keys.claimsOf(key)},
			[]string{request, ref.ID, bodyOf(spec.Call), stale, milliseconds(claimFor)})
		if err != nil {
			return nil, err
		}
		if len(answer) != 2 {
			return nil, corrupt("claim")
		}
		id, body := answer[0], answer[1]
		if id == ref.ID {
			return nil, nil
		}
		meta, err := s.find(ctx, id)
		switch {
		case errors.Is(err, store.ErrUnknown), errors.Is(err, store.ErrExpired):
			stale = id
		case err != nil:
			return nil, err
		case body != bodyOf(spec.Call):
			return nil, store.ErrMismatch
		default:
			return &meta, nil
		}
	}
}

// free lets the call of a response be made again.
func (s *Store) free(ctx context.Context, ref store.Ref) error {
	if ref.Claim == "" {
		return nil
	}
	key, request, _ := strings.Cut(ref.Claim, " ")
	_, err := s.exec(ctx, freeScript, []string{s.keys.claimsOf(key)}, []string{request, ref.ID})
	return err
}

// FindKey implements store.Store.
func (s *Store) FindKey(ctx context.Context, key string) (ids []string, err error) {
	if key == "" {
		return nil, nil
	}
	var claims map[string]string
	err = s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		claims, err = client.Do(ctx, client.B().Hgetall().Key(s.keys.claimsOf(digest(key))).Build()).AsStrMap()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("redis store: %w", err)
	}
	for _, claim := range claims {
		id, _, _ := strings.Cut(claim, " ")
		_, err := s.find(ctx, id)
		switch {
		case err == nil:
			ids = append(ids, id)
		case !errors.Is(err, store.ErrUnknown) && !errors.Is(err, store.ErrExpired):
			return nil, err
		}
	}
	return ids, nil
}
