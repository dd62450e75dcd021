package llmstream

import (
	"errors"
	"io"
	"iter"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// maxZstdWindow bounds the memory of a zstd decoder, in bytes. It is what every
// decoder has to support (RFC 8878, section 3.1.1.1.2).
const maxZstdWindow = 8 << 20

// inflaters are the content codings that a stream is decoded from.
var inflaters = map[string]func(io.Reader) (io.Reader, error){
	"gzip":   func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
	},
}

// inflater decodes a compressed body that comes in pieces, and gives what a
// piece is decoded to before it takes the next. The decoder, which reads, runs
// as a coroutine of the one who writes: never at the same time.
type inflater struct {
	in   []byte
	end  bool
	err  error // of the decoder; io.EOF after a whole body
	next func() (struct{}, bool)
	stop func()
}

var errInflaterStopped = errors.New("the decoder was stopped")

// newInflater returns an inflater that gives what it has decoded to out.
func newInflater(open func(io.Reader) (io.Reader, error), out func([]byte)) *inflater {
	f := new(inflater)
	f.next, f.stop = iter.Pull(func(yield func(struct{}) bool) {
		decoder, err := open(starved{f, yield})
		buf := make([]byte, 4<<10)
		for err == nil {
			var n int
			if n, err = decoder.Read(buf); n > 0 {
				out(buf[:n])
			}
		}
		if closer, ok := decoder.(interface{ Close() }); ok {
			closer.Close()
		}
		f.err = err
	})
	return f
}

// write decodes a piece. The error is that of the decoder, if not that it is at
// its end.
func (f *inflater) write(p []byte) error {
	f.in = p
	f.next()
	if f.err != nil && !errors.Is(f.err, io.EOF) {
		return f.err
	}
	return nil
}

// close decodes what is left. The error tells that the body is not whole.
func (f *inflater) close() error {
	f.end = true
	f.next()
	f.stop()
	if errors.Is(f.err, io.EOF) {
		return nil
	}
	return f.err
}

// starved is what the decoder reads from: where it has nothing, it is the
// writer's turn.
type starved struct {
	f     *inflater
	yield func(struct{}) bool
}

func (s starved) Read(p []byte) (int, error) {
	for len(s.f.in) == 0 {
		if s.f.end {
			return 0, io.ErrUnexpectedEOF
		}
		if !s.yield(struct{}{}) {
			return 0, errInflaterStopped
		}
	}
	n := copy(p, s.f.in)
	s.f.in = s.f.in[n:]
	return n, nil
}
