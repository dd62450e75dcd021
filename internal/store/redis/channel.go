package redis

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
	"github.com/caddy-llmstream/caddy-llmstream/internal/store"
)

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

// parseChannel reads the answer of channelScript to somebody who has had all
// notices up to a number in an epoch, or nothing where both are empty.
func parseChannel(answer []string, epoch, had string) (page store.ChannelPage, err error) {
	if len(answer) < 4 {
		return page, corrupt("channel")
	}
	now := answer[0]
	head, err1 := strconv.ParseUint(answer[1], 10, 53)
	first, err2 := strconv.ParseUint(answer[2], 10, 53)
	count, err3 := strconv.Atoi(answer[3])
	rest := answer[4:]
	if err1 != nil || err2 != nil || err3 != nil || count < 0 || count > len(rest) || now == "" {
		return page, corrupt("channel")
	}
	if had != "" {
		last, _ := strconv.ParseUint(had, 10, 64)
		switch {
		case epoch != now:
			return page, store.ErrExpired
		case last > head:
			return page, store.ErrUnknown
		case last < head && first != last+1:
			return page, store.ErrExpired
		}
	}
	page.Head = store.NewPosition(now, head)
	for i, notice := range rest[:count] {
		n, err := store.ParseNotice(store.NewPosition(now, first+uint64(i)), notice)
		if err != nil {
			return page, err
		}
		page.Notices = append(page.Notices, n)
	}
	page.Running, err = parseRunning(rest[count:])
	return page, err
}

// parseRunning reads the fields of a channel's hash: what runs has the number of
// the notice that it has started.
func parseRunning(fields []string) ([]string, error) {
	numbers := make(map[string]int)
	var ids []string
	for pair := range slices.Chunk(fields, 2) {
		id, running := strings.CutPrefix(pair[0], "r")
		if !running {
			continue
		}
		n, err := strconv.Atoi(pair[len(pair)-1])
		if err != nil || !fanout.IsID(id) {
			return nil, corrupt("running")
		}
		numbers[id] = n
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return numbers[a] - numbers[b] })
	return ids, nil
}
