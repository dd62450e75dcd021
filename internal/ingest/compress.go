package ingest

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

// decompressors are the content codings that a stream is decoded from.
var decompressors = map[string]func(io.Reader) (io.Reader, error){
	"gzip":   func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"x-gzip": func(r io.Reader) (io.Reader, error) { return gzip.NewReader(r) },
	"zstd": func(r io.Reader) (io.Reader, error) {
		return zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(maxZstdWindow))
	},
}

// decompressor decodes a compressed body that comes in pieces, and gives out
// what a piece is decoded to before it takes the next. The decoder, which reads,
// runs as a coroutine of the goroutine that writes: never at the same time.
type decompressor struct {
	in   []byte
	end  bool
	err  error // of the decoder; io.EOF after a whole body
	next func() (struct{}, bool)
	stop func()
}

var errDecompressorStopped = errors.New("the decoder was stopped")

// newDecompressor returns a decompressor that gives what it has decoded to out.
func newDecompressor(open func(io.Reader) (io.Reader, error), out func([]byte)) *decompressor {
	d := new(decompressor)
	d.next, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		decoder, err := open(pieces{d, yield})
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
		d.err = err
	})
	return d
}

// write decodes a piece. The error is that of the decoder, unless that has come
// to its end.
func (d *decompressor) write(p []byte) error {
	d.in = p
	d.next()
	if d.err != nil && !errors.Is(d.err, io.EOF) {
		return d.err
	}
	return nil
}

// close decodes what is left. The error says that the body is not whole.
func (d *decompressor) close() error {
	d.end = true
	d.next()
	d.stop()
	if errors.Is(d.err, io.EOF) {
		return nil
	}
	return d.err
}

// pieces is what the decoder reads from: where it has nothing, it is the
// writer's turn.
type pieces struct {
	d     *decompressor
	yield func(struct{}) bool
}

// Read implements io.Reader. At the end of the body it returns io.EOF: a decoder
// that is in the middle of a member makes an error of that by itself, and one
// that looks for another member finds that there is none.
func (p pieces) Read(b []byte) (int, error) {
	for len(p.d.in) == 0 {
		if p.d.end {
			return 0, io.EOF
		}
		if !p.yield(struct{}{}) {
			return 0, errDecompressorStopped
		}
	}
	n := copy(b, p.d.in)
	p.d.in = p.d.in[n:]
	return n, nil
}
