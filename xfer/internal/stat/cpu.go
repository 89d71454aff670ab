package stat

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPU returns the user and system time that this process has used so far (getrusage(2),
// RUSAGE_SELF). It includes the process's threads and their system calls, but not work
// that the kernel did for it elsewhere, as in interrupts and kernel threads. It is 0 if
// the kernel does not report it.
func CPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Share estimates the part of a server process's time that one of its sessions used, in
// proportion to its payload. If no other session moved payload, all of it is the
// session's, and shared is false. A session that moved nothing while others did has no
// part.
func Share(cpu time.Duration, own, all int64) (part time.Duration, shared bool) {
	if own < 0 || all <= own {
		return cpu, false
	}
	return time.Duration(float64(cpu) * float64(own) / float64(all)), true
}

// Meter measures the cost of one of a server's sessions.
type Meter struct {
	sessions *Sessions
	own      *Counters
	cpu      time.Duration
	before   int64 // wire bytes of all sessions
}

// Meter starts to measure a session. own are the counters that Begin has just returned for
// it.
func (s *Sessions) Meter(own *Counters) *Meter {
	return &Meter{sessions: s, own: own, cpu: CPU(), before: s.Read().Sum.WireBytes}
}

// CPU returns the session's share of the processor time that the process has used since
// the Meter was created. shared is true if other sessions moved payload meanwhile.
func (m *Meter) CPU() (part time.Duration, shared bool) {
	return Share(CPU()-m.cpu, m.own.wireBytes.Load(), m.sessions.Read().Sum.WireBytes-m.before)
}
