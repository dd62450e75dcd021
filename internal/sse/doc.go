// Package sse splits the bytes of a token stream into events: server-sent
// events as the WHATWG HTML Living Standard defines them (section 9.2,
// "Server-sent events"), and beside them the other framings that LLM backends
// use: one JSON value per line, one JSON array delivered piece by piece, and the
// frames of Amazon's event streams.
//
// All splitters are driven by the writer: bytes are fed as they arrive, in
// pieces of any size, and every event comes out as soon as its last byte is
// in. The invariant: the events do not depend on where the input is cut, no
// byte is looked at again once its piece is done, except once for the checksum
// of a frame, and what is held between two feeds is never more than one event,
// at most the limit given. Of a larger event only what is short in it is kept,
// within the same limit.
package sse
