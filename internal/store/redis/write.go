package redis

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

// Append implements store.Store.
func (s *Store) Append(ctx context.Context, ref store.Ref, b store.Batch) (ack store.Ack, err error) {
	about, err := marshalAbout(b.About)
	if err != nil {
		return store.Ack{}, err
	}
	said := store.Notice{Kind: store.Said, ID: ref.ID, First: b.First, Last: b.Last}
	err = s.write(ctx, ref, said, appendScript,
		[]string{s.keys.meta(ref.ID), s.keys.stream(ref.ID)},
		[]string{
			strconv.FormatInt(ref.Fence, 10), strconv.Itoa(b.First), strconv.Itoa(b.Last), string(b.Data),
			stamp(time.Now()), s.keys.events(ref.ID), milliseconds(liveFor), about,
		}, &ack)
	return ack, err
}

// Finish implements store.Store.
func (s *Store) Finish(ctx context.Context, ref store.Ref, f store.Final) (ack store.Ack, err error) {
	about, err := marshalAbout(f.About)
	if err != nil {
		return store.Ack{}, err
	}
	ended := store.Notice{Kind: store.Ended, ID: ref.ID, First: f.First, Last: f.Last, Status: f.Status, Model: f.Model}
	err = s.write(ctx, ref, ended, finishScript,
		[]string{s.keys.meta(ref.ID), s.keys.stream(ref.ID), s.keys.compact(ref.ID), s.keys.tombstone(ref.ID)},
		[]string{
			strconv.FormatInt(ref.Fence, 10), strconv.Itoa(f.First), strconv.Itoa(f.Last), string(f.Data),
			stamp(time.Now()), s.keys.events(ref.ID), about, ref.Replica, string(f.Status),
			string(f.Compact), milliseconds(ref.Keep), whose(ref.Access), milliseconds(ref.Keep + remember),
		}, &ack)
	if err == nil && f.Free {
		err = s.free(ctx, ref)
	}
	return ack, err
}

func marshalAbout(about *store.About) (string, error) {
	if about == nil {
		return "", nil
	}
	text, err := json.Marshal(about)
	return string(text), err
}

// write runs a script that writes to a response and tells its channel: in the
// same script, or in a cluster, where that is another slot, after it.
func (s *Store) write(ctx context.Context, ref store.Ref, n store.Notice, script *rueidis.Lua, keys, args []string, ack *store.Ack) error {
	return s.call(ctx, func(ctx context.Context, client rueidis.Client) error {
		joint := ref.Channel.Name != "" && together(client)
		if joint {
			channelKeys, channelArgs := s.notice(ref, &n)
			keys, args = append(keys, channelKeys...), append(args, channelArgs...)
		}
		answer, err := run(ctx, client, script, keys, args)
		if errors.Is(err, store.ErrGap) && len(answer) == 1 {
			if ack.Last, err = number(answer[0]); err == nil {
				err = store.ErrGap
			}
		}
		if err != nil {
			return err
		}
		if err := parseAck(answer, ack); err != nil || joint || ref.Channel.Name == "" {
			return err
		}
		channelKeys, channelArgs := s.notice(ref, &n)
		_, err = run(ctx, client, noticeScript, channelKeys, channelArgs)
		return err
	})
}

func parseAck(answer []string, ack *store.Ack) error {
	if len(answer) != 3 {
		return corrupt("acknowledgment")
	}
	var err error
	if ack.Last, err = number(answer[0]); err != nil {
		return err
	}
	followers, err := number(answer[2])
	ack.Cancel, ack.Followed = answer[1] != "", followers > 0
	return err
}

// notice returns the keys and arguments of a script's notice.
func (s *Store) notice(ref store.Ref, n *store.Notice) (keys, args []string) {
	base := s.keys.channel(ref.Channel)
	return []string{base + "m", base + "n"}, []string{
		base + "e", fanout.NewID(), milliseconds(ref.Keep + channelMore),
		ref.ID, string(rune(n.Kind)), string(n.Append(nil)),
	}
}

// Announce implements store.Store.
func (s *Store) Announce(ctx context.Context, ref store.Ref) error {
	if ref.Channel.Name == "" {
		return nil
	}
	meta, err := s.find(ctx, ref.ID)
	if err != nil {
		return err
	}
	keys, args := s.notice(ref, &store.Notice{Kind: store.Started, ID: ref.ID, At: meta.Started})
	_, err = s.exec(ctx, noticeScript, keys, args)
	return err
}

// Discard implements store.Store.
func (s *Store) Discard(ctx context.Context, ref store.Ref) error {
	_, err := s.exec(ctx, discardScript,
		[]string{s.keys.meta(ref.ID), s.keys.stream(ref.ID), s.keys.compact(ref.ID), s.keys.tombstone(ref.ID)},
		[]string{s.keys.events(ref.ID)})
	if err != nil {
		return err
	}
	if ref.Channel.Name != "" {
		keys, args := s.notice(ref, &store.Notice{Kind: store.Ended, ID: ref.ID, Status: fanout.Broken})
		_, err = s.exec(ctx, noticeScript, keys, args)
	}
	return errors.Join(err, s.free(ctx, ref))
}
