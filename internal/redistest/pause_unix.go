//go:build unix

package redistest

import "syscall"

// Pause stops the server as it stands, and Resume lets it go on.
func (s *Server) Pause() { _ = s.cmd.Process.Signal(syscall.SIGSTOP) }

// Resume ends a Pause.
func (s *Server) Resume() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }
