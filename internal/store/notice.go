package store

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/caddy-llmstream/caddy-llmstream/fanout"
)

// NoticeKind tells what a Notice says.
type NoticeKind byte

// The kinds.
const (
	Started NoticeKind = 's' // a response has started
	Said    NoticeKind = 't' // some of its events are in the log
	Ended   NoticeKind = 'e' // it has ended
)

// Notice is an entry of a channel: what started, was said and ended on it, in one
// order. A reader who has had all notices up to a position has had exactly the
// events that they name.
type Notice struct {
	Position Position
	Kind     NoticeKind
	ID       string        // of the response
	At       time.Time     // Started: when, to the millisecond
	First    int           // Said and Ended: the first event that is in the log with it
	Last     int           // likewise: the last one; 0 where there is none
	Status   fanout.Status // Ended
	Model    string        // Ended; empty where it is not known
}

// NewPosition returns the place of a notice: its number from 1, in a channel that
// was made anew when it had another epoch, a word of letters and digits.
func NewPosition(epoch string, number uint64) Position {
	return Position(epoch + "." + strconv.FormatUint(number, 10))
}

// Parse takes a position apart. The error is ErrUnknown for one that was never
// given out.
func (p Position) Parse() (epoch string, number uint64, err error) {
	epoch, digits, _ := strings.Cut(string(p), ".")
	number, err = strconv.ParseUint(digits, 10, 63)
	if err != nil || epoch == "" || NewPosition(epoch, number) != p {
		return "", 0, ErrUnknown
	}
	return epoch, number, nil
}

// Append appends the notice as text, without its position.
func (n *Notice) Append(dst []byte) []byte {
	dst = append(dst, byte(n.Kind), ' ')
	dst = append(dst, n.ID...)
	switch n.Kind {
	case Started:
		dst = fmt.Appendf(dst, " %d", n.At.UnixMilli())
	case Said:
		dst = fmt.Appendf(dst, " %d %d", n.First, n.Last)
	case Ended:
		dst = fmt.Appendf(dst, " %d %d %s %s", n.First, n.Last, n.Status, n.Model)
	}
	return dst
}

// ParseNotice reads what Append has written. The error is ErrCorrupt.
func ParseNotice(at Position, s string) (Notice, error) {
	corrupt := fmt.Errorf("%w: notice of %d bytes", ErrCorrupt, len(s))
	part := strings.SplitN(s, " ", 6)
	if len(part) < 3 || len(part[0]) != 1 || !fanout.IsID(part[1]) {
		return Notice{}, corrupt
	}
	n := Notice{Position: at, Kind: NoticeKind(part[0][0]), ID: part[1]}
	first, err := strconv.ParseInt(part[2], 10, 64)
	if err != nil || first < 0 {
		return Notice{}, corrupt
	}
	switch {
	case n.Kind == Started && len(part) == 3:
		n.At = time.UnixMilli(first)
		return n, nil
	case n.Kind == Said && len(part) == 4:
	case n.Kind == Ended && len(part) == 6:
		n.Status, n.Model = fanout.Status(part[4]), part[5]
		if !known(n.Status) || n.Status == fanout.InProgress {
			return Notice{}, corrupt
		}
	default:
		return Notice{}, corrupt
	}
	last, err := strconv.ParseInt(part[3], 10, 64)
	if err != nil || last < first || (first == 0 && last > 0) || last > math.MaxInt32 {
		return Notice{}, corrupt
	}
	n.First, n.Last = int(first), int(last)
	return n, nil
}

// ParseMessage reads a message of a ChannelTopic: the position, a space, and what
// Append has written. The error is ErrCorrupt.
func ParseMessage(data []byte) (Notice, error) {
	at, rest, _ := strings.Cut(string(data), " ")
	if _, _, err := Position(at).Parse(); err != nil {
		return Notice{}, fmt.Errorf("%w: position of %d bytes", ErrCorrupt, len(at))
	}
	return ParseNotice(Position(at), rest)
}

// ParseStatus reads a status. The error is ErrCorrupt.
func ParseStatus(s string) (fanout.Status, error) {
	if status := fanout.Status(s); known(status) {
		return status, nil
	}
	return "", fmt.Errorf("%w: status of %d bytes", ErrCorrupt, len(s))
}

func known(s fanout.Status) bool {
	switch s {
	case fanout.InProgress, fanout.Completed, fanout.Cancelled, fanout.Broken, fanout.Interrupted:
		return true
	}
	return false
}
