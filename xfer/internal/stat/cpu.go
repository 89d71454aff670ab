package stat

import (
	"time"

	"golang.org/x/sys/unix"
)

// CPU is the processor time that this process has taken so far, of user and kernel
// (getrusage(2), RUSAGE_SELF). It counts what the process's threads did, in system calls
// too, and not what the kernel did for it elsewhere, as in interrupts and its own threads.
// It is 0 where the kernel does not tell.
func CPU() time.Duration {
	var u unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Share is the part of a server process's time that one of its sessions took: by
// payload, which is what costs. Where no other session moved payload, all of it is the
// session's, and shared is false. A session that moved nothing beside others has no part.
func Share(cpu time.Duration, own, all int64) (part time.Duration, shared bool) {
	if own < 0 || all <= own {
		return cpu, false
	}
	return time.Duration(float64(cpu) * float64(own) / float64(all)), true
}

// Meter measures what one of a server's sessions costs.
type Meter struct {
	sessions *Sessions
	own      *Counters
	cpu      time.Duration
	before   int64 // wire bytes of all sessions
}

// Meter begins to measure a session whose counters Begin has just returned.
func (s *Sessions) Meter(own *Counters) *Meter {
	return &Meter{sessions: s, own: own, cpu: CPU(), before: s.Read().Sum.WireBytes}
}

// CPU is the session's share of the processor time that the process took since the
// Meter was made. shared says that it is a share: other sessions moved payload meanwhile.
func (m *Meter) CPU() (part time.Duration, shared bool) {
	return Share(CPU()-m.cpu, m.own.wireBytes.Load(), m.sessions.Read().Sum.WireBytes-m.before)
}
