package chunker

import (
	"errors"
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// trialStepBytes is how much a trial reads or writes by one call. It stays in the processor's
// cache, as a slot does that is used again and again.
const trialStepBytes = 1 << 20

// TrialMap finds out what it costs the processor to write so many bytes, in whole pages, to a
// file in this one's directory: written by write(2), and mapped by allocating, mapping and
// registering as much, and taking that back. register registers mapped memory with a device, and
// returns what takes that back. The times are those of the calling goroutine's thread, the less
// of two tries, so other work on the machine does not matter. The file has no name, and takes
// twice the space for a while. ErrNoSpace: that is not there. EOPNOTSUPP: IsMappable says no. An
// error of register or of what it returned is wrapped.
func (t *Temp) TrialMap(bytes int, register func(mem []byte) (release func() error, err error)) (written, mapped time.Duration, err error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	switch {
	case t.state != tempOpen:
		return 0, 0, &opError{op: "map", path: t.place, err: os.ErrClosed}
	case bytes <= 0:
		return 0, 0, opErr("map", t.place, unix.EINVAL)
	case !t.isMappable():
		return 0, 0, opErr("map", t.place, unix.EOPNOTSUPP)
	}
	page := os.Getpagesize()
	bytes = roundUp(bytes, page)
	ahead := &t.sink.deviceOf(t.dir).rungs.aheadBytes
	ahead.Add(2 * int64(bytes)) // it is free again soon
	defer ahead.Add(-2 * int64(bytes))
	fd, err := openat(t.at().fd, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return 0, 0, opErr("map", t.place, err)
	}
	defer closeQuietly(fd)
	step := trialStep(bytes)
	return lessOfTwo(trial{
		prepare: func() error { return unix.Ftruncate(fd, 0) },
		copied: func() error {
			return inSteps(step, bytes, func(p []byte, off int64) (int, error) { return unix.Pwrite(fd, p, off) })
		},
		mapped: func() error {
			if err := unix.Fallocate(fd, 0, int64(bytes), int64(bytes)); err != nil {
				return err
			}
			m, err := newMapping(fd, int64(bytes), bytes, page, unix.PROT_READ|unix.PROT_WRITE)
			if err != nil {
				return err
			}
			return m.tryOut(unix.MADV_POPULATE_WRITE, register)
		},
	}, t.place)
}

// TrialMap is Temp.TrialMap for reading the first bytes of this file, or all of it if it is
// shorter: read by read(2), and mapped by mapping and registering as much, and taking that back.
// io.ErrUnexpectedEOF: the file has been cut short.
func (f *File) TrialMap(bytes int, register func(mem []byte) (release func() error, err error)) (read, mapped time.Duration, err error) {
	if bytes <= 0 {
		return 0, 0, opErr("map", f.path, unix.EINVAL)
	}
	if !f.IsMappable() {
		return 0, 0, opErr("map", f.path, unix.EOPNOTSUPP)
	}
	bytes = int(min(int64(bytes), f.opened.Size))
	step := trialStep(bytes)
	return lessOfTwo(trial{
		prepare: func() error { return nil },
		copied:  func() error { return inSteps(step, bytes, f.ReadAt) },
		mapped: func() error {
			m, err := f.Map(0, bytes)
			if err != nil {
				return err
			}
			return m.tryOut(unix.MADV_POPULATE_READ, register)
		},
	}, f.path)
}

// trial is two ways to do the same.
type trial struct{ prepare, copied, mapped func() error }

// lessOfTwo is how much of a processor both ways of a trial take, the less of two tries: the
// first one has to wake much up.
func lessOfTwo(way trial, path string) (copied, mapped time.Duration, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for try := range 2 {
		if err := way.prepare(); err != nil {
			return 0, 0, opErr("map", path, err)
		}
		first, err := processorTime(way.copied)
		if err != nil {
			return 0, 0, opErr("map", path, err)
		}
		second, err := processorTime(way.mapped)
		if err != nil {
			return 0, 0, opErr("map", path, err)
		}
		if try == 0 {
			copied, mapped = first, second
		}
		copied, mapped = min(copied, first), min(mapped, second)
	}
	return copied, mapped, nil
}

// processorTime is how long a processor works for this thread while do runs, in the kernel, too
// (CLOCK_THREAD_CPUTIME_ID, clock_gettime(2)). The caller has locked the thread.
func processorTime(do func() error) (time.Duration, error) {
	var from, to unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &from); err != nil {
		return 0, err
	}
	if err := do(); err != nil {
		return 0, err
	}
	err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &to)
	return time.Duration(to.Nano() - from.Nano()), err
}

// trialStep is memory for inSteps, which the kernel has made.
func trialStep(bytes int) []byte {
	step := make([]byte, min(bytes, trialStepBytes))
	for i := range step {
		step[i] = byte(i)
	}
	return step
}

// inSteps calls do for so many bytes, at most all of step at once.
func inSteps(step []byte, bytes int, do func(p []byte, off int64) (int, error)) error {
	for off := 0; off < bytes; {
		n, err := do(step[:min(len(step), bytes-off)], int64(off))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		off += n
	}
	return nil
}

// tryOut makes the mapping's page tables, registers it, takes that back, and closes it.
func (m *Mapping) tryOut(advice int, register func(mem []byte) (release func() error, err error)) error {
	err := m.populate(advice)
	var release func() error
	if err == nil {
		release, err = register(m.mem)
	}
	if err == nil && release != nil {
		err = release()
	}
	return errors.Join(err, m.Close())
}
