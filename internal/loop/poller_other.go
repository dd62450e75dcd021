//go:build !linux

package loop

import "net"

// poller is what there is only on Linux.
type poller struct{}

func newPoller() *poller { return nil }

func (*poller) watch(func([]readiness)) {}

func (*poller) close() {}

func (l *Loop) poll(net.Conn, uint64) socket { return nil }

func (*writer) write(uintptr) {}
