package redis

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
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

// Cancel implements store.Store.
func (s *Store) Cancel(ctx context.Context, id string, as fanout.Access) (store.Meta, error) {
	meta, err := s.Find(ctx, id, as)
	if err != nil || meta.Status != fanout.InProgress {
		return meta, err
	}
	_, err = s.exec(ctx, cancelScript, []string{s.keys.meta(id)}, []string{s.keys.replica(""), id})
	return meta, err
}

// Channel implements store.Store.
func (s *Store) Channel(ctx context.Context, ch store.Channel, after store.Position, limit int) (store.ChannelPage, error) {
	var epoch, had string
	if after != "" {
		of, number, err := after.Parse()
		if err != nil {
			return store.ChannelPage{}, err
		}
		epoch, had = of, strconv.FormatUint(number, 10)
	}
	base := s.keys.channel(ch)
	answer, err := s.exec(ctx, channelScript, []string{base + "m", base + "n"}, []string{had, strconv.Itoa(limit)})
	switch {
	case errors.Is(err, store.ErrUnknown) && after == "":
		return store.ChannelPage{}, nil
	case errors.Is(err, store.ErrUnknown):
		return store.ChannelPage{}, store.ErrExpired
	case err != nil:
		return store.ChannelPage{}, err
	}
	return parseChannel(answer, epoch, had)
}

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

// Interface guards
var _ store.Store = (*Store)(nil)
