package xfer

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// A large file that lies in memory (tmpfs, hugetlbfs) can be registered as it is, a range
// of it at a time: the source's device then reads the file's own pages, and the sink's device
// writes to them, and no processor copies a byte. A range that a worker could not have in this
// way goes through the slots, so that every file can do without.

const (
	// regionBytes is how much of a file is registered at once: enough for the cost of a
	// registration not to matter, and little beside a ring.
	regionBytes = 16 << 20
	// trialBytes is how much a trial moves.
	trialBytes = 4 << 20
)

// registersFiles reports whether this end may register files: their bytes must be in the
// chunks as they are in the files, and the memory that of the host. An RDMA device pins the
// pages that it is given. Over TCP the processor would touch them, which is a SIGBUS where
// somebody else has cut the file short.
func (s *session) registersFiles() bool {
	return s.mayRegister() && s.ringWish.Placement.GPU == wire.GPUOff
}

// mayRegister reports whether one of the two ends may. A larger chunk is in no region whole.
func (s *session) mayRegister() bool {
	registers := s.terms.IO == fileset.IOAuto || s.terms.IO == fileset.IORegistered
	return registers && s.terms.ChunkBytes <= regionBytes && s.link.transport == "verbs" && s.terms.Codec == wire.CompressOff && !s.terms.Encrypted()
}

// errNotRegistered refuses a copy of which the user wants files registered.
var errNotRegistered = errors.New("--io registered is for host memory, chunks of at most 16MiB that are neither compressed nor encrypted, and an RDMA device")

// checkRegistered refuses a session that is to register files and cannot.
func (s *session) checkRegistered() error {
	if s.terms.IO == fileset.IORegistered && !s.registersFiles() {
		return fmt.Errorf("%w: %w", rdma.ErrUnsupported, errNotRegistered)
	}
	return nil
}

// regionTrial finds out, once in a session and by its first file in memory, whether
// registered files take less of a processor than copies between them and slots. A user who
// asks for the rung has no trial.
type regionTrial struct {
	off    atomic.Bool // not possible, or not worth it
	passed atomic.Bool
	busy   atomic.Bool // a worker tries
}

// pays reports whether files are to be registered. It runs the trial in the first worker that
// asks, and tells others meanwhile to do without.
func (t *regionTrial) pays(s *session, access rdma.Access, try func(bytes int, register func([]byte) (func() error, error)) (copied, registered time.Duration, err error)) bool {
	if t.off.Load() || t.passed.Load() {
		return t.passed.Load() && !t.off.Load()
	}
	if s.terms.IO == fileset.IORegistered {
		t.passed.Store(true)
		return true
	}
	if !t.busy.CompareAndSwap(false, true) {
		return false
	}
	copied, registered, err := try(trialBytes, func(mem []byte) (func() error, error) {
		mr, err := s.link.rail.Register(rdma.HostRegion(mem), access|rdma.Unordered)
		if err != nil {
			return nil, err
		}
		return mr.Close, nil
	})
	if err != nil || registered >= copied {
		t.off.Store(true)
		return false
	}
	t.passed.Store(true)
	return true
}

// reservePin books another region, and returns what ends the booking once the region counts by
// itself or could not be made. ok is false where it may not be registered. The kernel counts all
// that a process registers against RLIMIT_MEMLOCK (setrlimit(2)), and rails and sessions that come
// later register rings. So regions take a quarter of it, unless the user asks for them or this process
// is exempt.
func (s *session) reservePin(bytes int64) (release func(), ok bool) {
	n := int64(len(s.links.snapshot())) * bytes
	release = func() { s.pinnedBytes.Add(-n) }
	pinned := s.pinnedBytes.Add(n)
	if s.terms.IO == fileset.IORegistered {
		return release, true
	}
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit)
	fits := err == nil && (limit.Cur == unix.RLIM_INFINITY || pinned <= int64(min(limit.Cur/4, math.MaxInt64)))
	if fits || s.mayLockAll() {
		return release, true
	}
	release()
	return nil, false
}

// mayLockAll reports whether the kernel takes what this process registers for exempt from the
// limit, on all rails.
func (s *session) mayLockAll() bool {
	for _, l := range s.links.snapshot() {
		if l.transport == "verbs" && l.rail.Device().Transport == rdma.IWARP {
			return false // it may be Soft-iWARP
		}
	}
	return rdma.MayLockAll()
}

// ringBytes is how much the session's ring holds, once it is made.
func (s *session) ringBytes() int64 { return int64(s.link.ring.Slots) * int64(s.link.ring.SlotBytes) }

// aheadBytes is how much of files an end may be about to use: what the ring may have under way,
// and the regions that come next.
func (s *session) aheadBytes() int64 { return s.ringBytes() + 2*regionBytes }

// mostRegions bounds the regions that an end has at once.
func (s *session) mostRegions() int { return int(2 * s.aheadBytes() / regionBytes) }

// fileRegion is a range of a file that is mapped here and registered on the rails of a
// session's links.
type fileRegion struct {
	session *session
	mapping *chunker.Mapping
	on      []regionMR
}

// regionMR is a region's registration on the rail of a link.
type regionMR struct {
	link *railLink
	mr   rdma.MR
}

// registerFile registers a mapping on the links over RDMA devices that the session has now. It owns
// the mapping, also after an error. A link that is being lost has no part in it. The region is nil
// where there is no such link.
func (s *session) registerFile(m *chunker.Mapping, access rdma.Access) (*fileRegion, error) {
	r := &fileRegion{session: s, mapping: m}
	for _, l := range s.links.snapshot() {
		if l.transport != "verbs" {
			continue
		}
		mr, err := l.rail.Register(rdma.HostRegion(m.Mem()), access|rdma.Unordered)
		switch {
		case err == nil:
			r.on = append(r.on, regionMR{l, mr})
			s.pinnedBytes.Add(int64(mr.Len()))
		case !l.lost.Load() && !errors.Is(err, rdma.ErrClosed):
			return nil, errors.Join(fmt.Errorf("register %d bytes of a file: %w", len(m.Mem()), err), r.close())
		}
	}
	if len(r.on) == 0 {
		return nil, r.close()
	}
	return r, nil
}

// mrOn is the region's registration on the rail of a link, or nil.
func (r *fileRegion) mrOn(l *railLink) rdma.MR {
	for i := range r.on {
		if r.on[i].link == l {
			return r.on[i].mr
		}
	}
	return nil
}

// close deregisters and unmaps the range. No device of this end may use it any more, and no
// peer may reach it by work that it still has under way.
func (r *fileRegion) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for i := range r.on {
		errs = append(errs, r.on[i].mr.Close())
		r.session.pinnedBytes.Add(-int64(r.on[i].mr.Len()))
	}
	if err := errors.Join(errs...); err != nil {
		return err // the device may still use the memory: leave it mapped
	}
	r.on = nil
	return r.mapping.Close()
}

// fileRun is a chunk whose bytes lie in one file as they lie in the payload.
type fileRun struct {
	entry *srcEntry
	off   int64
	bytes int
}

// runOf returns a chunk's run. ok is false for a chunk of several files, with holes, or that
// is sent again.
func (c *outChunk) runOf() (r fileRun, ok bool) {
	if c.again || len(c.Extents) == 0 || c.PlainBytes == 0 || c.Extents[0].SlotOff != 0 {
		return r, false
	}
	first := &c.Extents[0]
	for i := range c.Extents {
		if c.files[i] != c.files[0] || !inRun(&c.Extents[i], first) {
			return r, false
		}
	}
	return fileRun{c.files[0], first.Off, int(c.PlainBytes)}, true
}

// inRun reports whether an extent brings bytes that lie in its file behind those of first as
// they do in the payload, which first begins.
func inRun(x, first *wire.Extent) bool {
	return x.Entry == first.Entry && x.Brings() && x.Off >= first.Off && x.Off-first.Off == int64(x.SlotOff)
}
