package soak

import (
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// These faults change, between two attempts, things that the later attempt might trust.

// betweenAttempts are the faults of this file.
var betweenAttempts = []fault{
	{name: "destination exchanged, server started again", codes: []int{0}, exchanges: true, retried: true, fits: exchangeable(true), strike: exchangeDestination},
	{name: "source exchanged, server started again", codes: []int{0}, exchanges: true, retried: true, fits: exchangeable(false), strike: exchangeSource},
	damages("partial file cut off", func(s *step, f *os.File, size int64) error { return f.Truncate(s.rng.Int64N(size)) }),
	damages("partial file with a hole", func(s *step, f *os.File, size int64) error {
		const keepSize = unix.FALLOC_FL_KEEP_SIZE
		return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|keepSize, s.rng.Int64N(size), 64<<10)
	}),
	damages("partial file overwritten", func(s *step, f *os.File, size int64) error {
		_, err := f.WriteAt([]byte(strings.Repeat("other", 800)), s.rng.Int64N(size))
		return err
	}),
	damages("partial file made anew", func(s *step, f *os.File, size int64) error {
		if err := os.Remove(f.Name()); err != nil {
			return err
		}
		made, err := os.OpenFile(f.Name(), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = made.Truncate(size)
			_ = made.Close()
		}
		return err
	}),
	damages("partial files exchanged", func(s *step, f *os.File, _ int64) error {
		for _, other := range s.partials() {
			if other != f.Name() {
				return unix.Renameat2(unix.AT_FDCWD, f.Name(), unix.AT_FDCWD, other, unix.RENAME_EXCHANGE)
			}
		}
		return nil
	}),
}

// exchangeable reports whether another directory can replace the server's root so that
// it contains everything that the copy brings.
func exchangeable(push bool) func(s *step) bool {
	return func(s *step) bool {
		return proxied(s) && inPlace(s) && s.push == push && s.manifests == "" && !s.has("-H", "--delete", "--copy-growing")
	}
}

// restart restarts the server after exchange has replaced its root, unless the copy has
// ended by then.
func restart(s *step, exchange func()) {
	s.server.signal(syscall.SIGKILL)
	s.server.wait(leaving())
	select {
	case <-s.client.ended:
	default:
		exchange()
	}
	s.server = serve(s.t, s.link, s.root())
	s.proxy.server.Store(s.server.addr)
}

// exchangeDestination replaces the server's directory by an empty one.
func exchangeDestination(s *step) func() {
	restart(s, func() {
		must(s.t, os.Rename(s.to, filepath.Join(s.t.TempDir(), "root")))
		must(s.t, os.MkdirAll(s.copied(), 0o755))
		s.was = nil
	})
	return func() { s.hasAll(s.client) }
}

// exchangeSource replaces the source by another tree.
func exchangeSource(s *step) func() {
	restart(s, func() {
		must(s.t, os.Rename(s.from, filepath.Join(s.t.TempDir(), "root")))
		must(s.t, os.MkdirAll(s.from+"/tree", 0o755))
		s.source = newTree(s.t, s.rng, s.from+"/tree")
	})
	return func() { s.hasAll(s.client) }
}

// hasAll checks that a copy that succeeded brought everything that the source has now.
func (s *step) hasAll(p *process) {
	if p.cmd.ProcessState.ExitCode() != 0 {
		return
	}
	now, _ := look(s.t, s.source.dir)
	there, _ := look(s.t, s.copied())
	there.equal(s.t, now, union(append(slices.Clone(s.versions), s.was)...), s.modes(), s.has("-a", "-rlpt", "-rlt"))
}

// damageAfter is longer than a file may change after the last record of its journal.
const damageAfter = 1100 * time.Millisecond

// damages returns a fault that kills all ends and then damages partial files.
func damages(name string, damage func(s *step, f *os.File, size int64) error) fault {
	strike := func(s *step) func() { return killed(s, damage) }
	return fault{name: name, codes: []int{-1, 0, 1}, strike: strike, large: true, fits: func(s *step) bool { return !s.has("--no-resume") }}
}

// killed kills all ends. Later it damages the partial files.
func killed(s *step, damage func(s *step, f *os.File, size int64) error) (later func()) {
	if s.server != nil {
		s.server.signal(syscall.SIGKILL)
		s.server.wait(leaving())
	}
	s.client.signal(syscall.SIGKILL)
	return func() {
		time.Sleep(damageAfter)
		for _, path := range s.partials() {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			must(s.t, err)
			st, err := f.Stat()
			must(s.t, err)
			must(s.t, damage(s, f, max(1, st.Size())))
			must(s.t, f.Close())
		}
	}
}

// partials returns the partial files at the destination.
func (s *step) partials() (paths []string) {
	err := filepath.WalkDir(s.to, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && isTemp(path) && !strings.Contains(d.Name(), "journal") {
			paths = append(paths, path)
		}
		return err
	})
	must(s.t, err)
	return paths
}
