package xfer

import (
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// pinningRail registers memory without a look at it.
type pinningRail struct{ rdma.Rail }

func (pinningRail) Device() rdma.Device { return rdma.Device{} }

func (pinningRail) Register(r rdma.Region, _ rdma.Access) (rdma.MR, error) {
	return pinnedMR{len: len(r.Mem)}, nil
}

type pinnedMR struct {
	rdma.MR
	len int
}

func (m pinnedMR) Len() int     { return m.len }
func (m pinnedMR) Close() error { return nil }

// pinningSession registers files as its user asks, over one link, beside a ring of 4 MiB.
func pinningSession() *session {
	link := newFurtherLink(1, pinningRail{}, nil, 1)
	link.transport, link.ring = "verbs", &ring.Ring{Slots: 4, SlotBytes: 1 << 20}
	s := &session{link: link, links: newLinkSet(link), pinnedBytes: new(atomic.Int64)}
	s.terms.IO = fileset.IORegistered
	return s
}

// fileInMemory is an entry of a tmpfs that takes its space, and its file.
func fileInMemory(t *testing.T, bytes int64) (*srcEntry, *chunker.File) {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gdrcp-test-")
	if err != nil {
		t.Skipf("no /dev/shm: %v", err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	path := filepath.Join(dir, "f")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.Fallocate(int(f.Fd()), 0, 0, bytes); err != nil {
		t.Skipf("no room in /dev/shm: %v", err)
	}
	tree, err := chunker.OpenLocal([]chunker.Source{{Path: path, Name: "f"}}, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tree.Close() })
	file, err := tree.Open("f")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if !file.IsMappable() {
		t.Skip("/dev/shm is no tmpfs")
	}
	return &srcEntry{entryState: entryState{id: 1, AnnouncedEntry: fileAt("f", int(bytes))}}, file
}

// Of a file that is sent in part, as one that is compared, or by chunks that do not fit its
// regions, no region gets used up. A source lets go of those that lie behind all the same.
func TestRegionsThatAreNotUsedUp(t *testing.T) {
	const regions = 8
	e, file := fileInMemory(t, regions*regionBytes)
	s := pinningSession()
	f := newSentFrom(s)
	most := int64(0)
	for i := range int64(regions) {
		if err := f.tidy(); err != nil {
			t.Fatal(err)
		}
		r := f.take(fileRun{entry: e, off: i*regionBytes + 5<<20, bytes: 1 << 20}, file)
		if r == nil {
			t.Fatalf("region %d was not made", i)
		}
		most = max(most, s.pinnedBytes.Load())
		f.leave(r)
	}
	if most > 4*regionBytes {
		t.Errorf("%d MiB were pinned for a ring of 4 MiB", most>>20)
	}
	f.drop(e)
	if err := f.close(); err != nil || s.pinnedBytes.Load() != 0 {
		t.Errorf("%d bytes are still pinned, %v", s.pinnedBytes.Load(), err)
	}
}

// However many files are under way, what is registered is bounded.
func TestRegionsOfManyFiles(t *testing.T) {
	e, file := fileInMemory(t, 2*regionBytes)
	s := pinningSession()
	f := newSentFrom(s)
	var taken []*sentRegion
	for id := range uint64(wire.MaxTransfers) {
		of := &srcEntry{entryState: entryState{id: id, AnnouncedEntry: e.AnnouncedEntry}}
		if r := f.take(fileRun{entry: of, off: 1 << 20, bytes: 1 << 20}, file); r != nil {
			taken = append(taken, r)
		}
	}
	if n := s.pinnedBytes.Load(); len(taken) == 0 || n > 2*4<<20+64<<20 {
		t.Errorf("%d MiB are pinned for a ring of 4 MiB", n>>20)
	}
	for _, r := range taken {
		f.leave(r)
	}
	if err := f.close(); err != nil || s.pinnedBytes.Load() != 0 {
		t.Errorf("%d bytes are still pinned, %v", s.pinnedBytes.Load(), err)
	}
}

// withoutLocks takes the right to lock all memory from the test's thread, which ends with it.
func withoutLocks(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var caps [2]unix.CapUserData
	if err := unix.Capget(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
	caps[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	if err := unix.Capset(&header, &caps[0]); err != nil {
		t.Fatal(err)
	}
}

// The sessions of a server share what regions may take of the limit on locked memory, unless a
// user asks for them: the rest is for rings.
func TestRegionsShareTheLimit(t *testing.T) {
	const bytes = 1 << 10
	var was unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &was); err != nil {
		t.Fatal(err)
	}
	few := unix.Rlimit{Cur: 4 * 5 * bytes, Max: was.Max}
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &few); err != nil {
		t.Fatal(err)
	}
	defer unix.Setrlimit(unix.RLIMIT_MEMLOCK, &was)
	auto := pinningSession()
	auto.terms.IO = fileset.IOAuto
	if _, ok := auto.reservePin(6 * bytes); ok != rdma.MayLockAll() {
		t.Errorf("a region beyond the quarter may be registered: %v, exempt from the limit: %v", ok, !ok)
	}
	withoutLocks(t)
	var pinned atomic.Int64
	var releases []func()
	for _, tc := range []struct {
		name string
		io   fileset.IOMode
		want int
	}{
		{"a session", fileset.IOAuto, 3},
		{"another", fileset.IOAuto, 2},
		{"a third", fileset.IOAuto, 0},
		{"one whose user asks for regions", fileset.IORegistered, 3},
	} {
		s := pinningSession()
		s.terms.IO, s.pinnedBytes = tc.io, &pinned
		n := 0
		for range 3 {
			if release, ok := s.reservePin(bytes); ok {
				n++
				releases = append(releases, release)
			}
		}
		if n != tc.want {
			t.Errorf("%s books %d regions, want %d", tc.name, n, tc.want)
		}
	}
	for _, release := range releases {
		release()
	}
	if n := pinned.Load(); n != 0 {
		t.Errorf("%d bytes are still booked", n)
	}
}
