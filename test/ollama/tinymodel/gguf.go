package tinymodel

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// The GGUF file format, version 3, as
// https://github.com/ggml-org/ggml/blob/master/docs/gguf.md describes it. All
// numbers are little-endian.
const (
	ggufMagic     = "GGUF"
	ggufVersion   = 3
	ggufAlignment = 32

	ggufUint32  = 4
	ggufInt32   = 5
	ggufFloat32 = 6
	ggufBool    = 7
	ggufString  = 8
	ggufArray   = 9

	tensorFloat32 = 0
)

// ggufFile is what stands in a file: metadata and tensors, in this order.
type ggufFile struct {
	meta    bytes.Buffer
	keys    uint64
	tensors []tensor
}

// tensor is a matrix of float32, or a vector.
type tensor struct {
	name string
	dims []uint64  // the fastest first
	data []float32 // all zero where it is nil
}

func (t *tensor) bytes() uint64 {
	n := uint64(4)
	for _, d := range t.dims {
		n *= d
	}
	return n
}

// set adds a key of the metadata. The value is a string, a list of strings, a
// bool or a number that is written as its type says.
func (f *ggufFile) set(key string, value any) {
	putString(&f.meta, key)
	f.keys++
	switch v := value.(type) {
	case string:
		put(&f.meta, uint32(ggufString))
		putString(&f.meta, v)
	case []string:
		put(&f.meta, uint32(ggufArray), uint32(ggufString), uint64(len(v)))
		for _, s := range v {
			putString(&f.meta, s)
		}
	case []int32:
		put(&f.meta, uint32(ggufArray), uint32(ggufInt32), uint64(len(v)), v)
	case bool:
		put(&f.meta, uint32(ggufBool), v)
	case uint32:
		put(&f.meta, uint32(ggufUint32), v)
	case float32:
		put(&f.meta, uint32(ggufFloat32), v)
	default:
		panic(fmt.Sprintf("tinymodel: no GGUF type for %T", value))
	}
}

// writeTo writes the file.
func (f *ggufFile) writeTo(w io.Writer) error {
	var head bytes.Buffer
	head.WriteString(ggufMagic)
	put(&head, uint32(ggufVersion), uint64(len(f.tensors)), f.keys)
	head.Write(f.meta.Bytes())
	offset := uint64(0)
	for _, t := range f.tensors {
		putString(&head, t.name)
		put(&head, uint32(len(t.dims)), t.dims, uint32(tensorFloat32), offset) //nolint:gosec // one or two dimensions
		offset += align(t.bytes())
	}
	size := uint64(head.Len()) //nolint:gosec // G115: a length is never negative
	head.Write(make([]byte, align(size)-size))
	if _, err := head.WriteTo(w); err != nil {
		return err
	}
	for _, t := range f.tensors {
		if err := t.writeTo(w); err != nil {
			return err
		}
	}
	return nil
}

// writeTo writes the numbers of a tensor and what comes before the next one.
func (t *tensor) writeTo(w io.Writer) error {
	if t.data != nil {
		if err := binary.Write(w, binary.LittleEndian, t.data); err != nil {
			return err
		}
	}
	zeros := align(t.bytes()) - uint64(len(t.data))*4
	_, err := io.CopyN(w, zeroReader{}, int64(zeros)) //nolint:gosec // no tensor has 2^63 bytes
	return err
}

// align rounds a length up to where the next tensor may begin.
func align(n uint64) uint64 {
	return (n + ggufAlignment - 1) / ggufAlignment * ggufAlignment
}

func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		if err := binary.Write(b, binary.LittleEndian, v); err != nil {
			panic(fmt.Sprintf("tinymodel: %v", err)) // a type without a fixed size
		}
	}
}

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// zeroReader reads zeros without an end.
type zeroReader struct{}

func (zeroReader) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}
