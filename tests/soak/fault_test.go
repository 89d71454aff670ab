package soak

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/xfer"
)

// fault is something that goes wrong while a copy runs.
type fault struct {
	name string
	// codes are the exit codes with which the client may end.
	codes []int
	// retried means that a copy that may retry succeeds.
	retried bool
	// exchanges means that the retry finds another directory.
	exchanges bool
	// large means that the source has files that are worth resuming.
	large bool
	// early means that it strikes as soon as the copy has begun.
	early bool
	// mount, unless nil, changes the file system of one end, before the server is started.
	mount func(s *step)
	// prepare, unless nil, changes the contents of an end before the copy.
	prepare func(s *step)
	// strike makes it happen. It returns a function, which may be nil, that undoes what
	// would prevent the copy from being run again.
	strike func(s *step) (undo func())
	// fits reports whether the fault can happen in a step; nil means always.
	fits func(s *step) bool
}

func served(s *step) bool { return s.server != nil }
func proxied(s *step) bool {
	return s.server != nil && s.link.isTCP()
}

// inPlace reports whether the copy writes into the existing directory.
func inPlace(s *step) bool { return !s.whole }

// signals returns a fault that sends a process a signal, and perhaps another one later.
func signals(name string, codes []int, server bool, first syscall.Signal, later time.Duration) fault {
	strike := func(s *step) func() {
		struck := s.client
		if server {
			struck = s.server.process
		}
		struck.signal(first)
		switch {
		case first == syscall.SIGSTOP:
			time.Sleep(later)
			struck.signal(syscall.SIGCONT)
		case server:
			struck.wait(leaving())
		}
		return nil
	}
	f := fault{name: name, codes: codes, strike: strike}
	if server {
		f.fits = served
	}
	return f
}

// tooLong is longer than any end waits for a message from its peer.
func tooLong() time.Duration {
	t := xfer.DefaultTimeouts()
	return t.Silence + t.Heartbeat + xfer.AbortWait
}

// faults are all the faults. Slow ones are chosen less often, see pick.
var faults = []fault{
	{name: "nothing", codes: []int{0}, strike: func(*step) func() { return nil }},
	signals("client killed", []int{-1, 0}, false, syscall.SIGKILL, 0),
	signals("server killed", []int{0, 1}, true, syscall.SIGKILL, 0),
	signals("client interrupted", []int{0, 130}, false, syscall.SIGINT, 0),
	signals("client terminated", []int{0, 130}, false, syscall.SIGTERM, 0),
	signals("client hung up on", []int{0, 130}, false, syscall.SIGHUP, 0),
	signals("server terminated", []int{0, 1}, true, syscall.SIGTERM, 0),
	signals("client stopped for a while", []int{0}, false, syscall.SIGSTOP, time.Second),
	signals("server stopped for a while", []int{0}, true, syscall.SIGSTOP, time.Second),
	{name: "both killed", codes: []int{-1, 0, 1}, fits: served, strike: func(s *step) func() {
		s.server.signal(syscall.SIGKILL)
		s.client.signal(syscall.SIGKILL)
		s.server.wait(leaving())
		return nil
	}},
	{name: "server killed and started again", codes: []int{0, 1}, retried: true, fits: proxied, strike: func(s *step) func() {
		s.server.signal(syscall.SIGKILL)
		s.server.wait(leaving())
		s.server = serve(s.t, s.link, s.root())
		s.proxy.server.Store(s.server.addr)
		return nil
	}},
	{name: "connections cut", codes: []int{0, 1}, retried: true, fits: proxied, strike: func(s *step) func() {
		s.proxy.cut()
		return nil
	}},
	{name: "bytes changed on the way", codes: []int{0, 1, 4}, fits: proxied, strike: func(s *step) func() {
		s.proxy.flips.Store(1 + s.rng.Int64N(5))
		return func() { s.proxy.flips.Store(0) }
	}},
	{name: "disk full", codes: []int{0, 1}, fits: func(s *step) bool { return os.Getuid() == 0 }, mount: (*step).smallDisk, strike: fillDisk},
	{name: "source changed", codes: []int{0, 3}, strike: func(s *step) func() {
		s.source.change()
		return nil
	}},
	{name: "source changed a lot", codes: []int{0, 3}, strike: func(s *step) func() {
		for range 20 {
			s.noteVersion()
			s.source.change()
		}
		return nil
	}},
	{name: "destination removed", codes: []int{0, 1, 3}, fits: inPlace, strike: func(s *step) func() {
		s.gone = true
		err := os.RemoveAll(s.copied())
		for errors.Is(err, syscall.ENOTEMPTY) { // the copy creates more
			err = os.RemoveAll(s.copied())
		}
		must(s.t, err)
		return func() { must(s.t, os.MkdirAll(s.copied(), 0o755)) }
	}},
	{name: "destination renamed", codes: []int{0, 1, 3}, fits: inPlace, strike: func(s *step) func() {
		must(s.t, os.Rename(s.copied(), s.copied()+".renamed"))
		return func() { must(s.t, os.MkdirAll(s.copied(), 0o755)) }
	}},
	{name: "another copy of the same", codes: []int{0}, fits: func(s *step) bool { return !s.has("-H") }, strike: anotherCopy([]int{0})},
	// A hard link fails if its first name is by then the other copy's.
	{name: "another copy of the same, with links", codes: []int{0, 3}, fits: func(s *step) bool { return s.has("-H") }, strike: anotherCopy([]int{0, 3})},
	// These take as long as an end waits for its peer.
	signals("client stopped for too long", []int{0, 1}, false, syscall.SIGSTOP, tooLong()),
	signals("server stopped for too long", []int{0, 1}, true, syscall.SIGSTOP, tooLong()),
	{name: "network silent", codes: []int{0, 1}, fits: proxied, strike: func(s *step) func() {
		s.proxy.stalled.Store(true)
		return func() { s.proxy.stalled.Store(false) }
	}},
}

// slowFaults is how many of the last faults are slow.
const slowFaults = 3

// pick chooses a fault that fits.
func pick(s *step) fault {
	all := slices.Concat(critical, betweenAttempts, faults)
	for {
		n := len(all)
		if s.rng.IntN(15) != 0 {
			n -= slowFaults
		}
		if f := all[s.rng.IntN(n)]; f.fits == nil || f.fits(s) {
			return f
		}
	}
}

// anotherCopy starts the same copy a second time.
func anotherCopy(codes []int) func(s *step) func() {
	return func(s *step) func() {
		second := s.begin("second")
		return func() { s.ended(second, codes) }
	}
}

// fillDisk fills the destination, which is a small disk.
func fillDisk(s *step) func() {
	filler := filepath.Join(s.to, "filler")
	f, err := os.Create(filler)
	must(s.t, err)
	defer f.Close()
	for block := make([]byte, 64<<10); ; {
		if _, err := f.Write(block); err != nil {
			break
		}
	}
	return func() { must(s.t, os.Remove(filler)) }
}

// smallDisk mounts at the destination a file system into which the copy just fits.
func (s *step) smallDisk() {
	if err := unix.Mount("tmpfs", s.to, "tmpfs", 0, "size=400m"); err != nil {
		s.t.Skipf("mount a small tmpfs: %v", err)
	}
	s.t.Cleanup(func() {
		if err := unix.Unmount(s.to, unix.MNT_DETACH); err != nil {
			s.t.Errorf("unmount %s: %v", s.to, err)
		}
	})
}
