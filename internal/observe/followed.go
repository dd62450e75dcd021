package observe

import "go.uber.org/zap/zapcore"

// Followed is a response as the access log of a client has it that did not ask
// for it: the record, with the bytes that this client was sent.
type Followed struct {
	*Record
	Sent func() int64
}

// MarshalLogObject implements zapcore.ObjectMarshaler.
func (f Followed) MarshalLogObject(enc zapcore.ObjectEncoder) error {
	return f.marshal(enc, f.Sent())
}

// Interface guards
var _ zapcore.ObjectMarshaler = Followed{}
