package deliver

import "sync/atomic"

// state is how far a Conn is. It only moves forward.
type state uint32

const (
	open      state = iota // nothing is committed; a heartbeat may commit it
	sealed                 // nothing is committed, and no heartbeat may commit it
	streaming              // the head of a stream of frames has been written
	passing                // the head of a response that passes as it is has been written
	ended                  // the terminal frame, or a refusal, has been written
	away                   // the client was told to reconnect
)

// connState holds a state. It is read without a lock; all moves but that from
// open to sealed are made by whatever holds the Conn's lock.
type connState struct{ v atomic.Uint32 }

func (s *connState) load() state { return state(s.v.Load()) }

func (s *connState) move(to state) { s.v.Store(uint32(to)) }

// committed reports whether a status has been written.
func (s *connState) committed() bool { return s.load() >= streaming }

// over reports whether nothing more is to be written.
func (s *connState) over() bool { return s.load() >= ended }

// seal keeps heartbeats from committing the response from now on, and reports
// whether one has.
func (s *connState) seal() (committed bool) {
	s.v.CompareAndSwap(uint32(open), uint32(sealed))
	return s.committed()
}

// commit moves on to streaming or passing, and reports false where the response
// is committed already. A heartbeat may only begin what is not sealed.
func (s *connState) commit(to state, heartbeat bool) bool {
	if s.v.CompareAndSwap(uint32(open), uint32(to)) {
		return true
	}
	return !heartbeat && s.v.CompareAndSwap(uint32(sealed), uint32(to))
}
