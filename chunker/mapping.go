package chunker

import (
	"io"
	"os"
	"reflect"
	"runtime"
	"runtime/debug"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
)

// Mapping is a range of a file in memory, mapped into this process (mmap(2), MAP_SHARED), so
// that an RDMA device can be given the file's own pages. Its owner ends it with Close; it may
// outlive the File or Temp. Many goroutines may use it at once. Only Guard may look at the
// memory of a file that others can cut short.
type Mapping struct {
	op, path string // for errors
	off      int64
	mem      []byte
	whole    []byte // mem and the rest of its first and last page
}

// Off is where in the file the mapping begins: at a page, which may lie within a huge page.
func (m *Mapping) Off() int64 { return m.off }

// Mem is all of the mapping. It begins at a page, and ends where Map was asked to end, or where
// the file did when it was opened. After Close it is nil.
func (m *Mapping) Mem() []byte { return m.mem }

// At is the part of the mapping with n bytes from byte off of the file on, or nil where not all
// of that is in it.
func (m *Mapping) At(off int64, n int) []byte {
	mapped := int64(len(m.mem))
	if n < 0 || off < m.off || off-m.off > mapped || int64(n) > mapped-(off-m.off) {
		return nil
	}
	from := int(off - m.off)
	return m.mem[from : from+n : from+n]
}

// Close unmaps the range. Nobody may use the memory any more: a device has to be told before.
// A second Close does nothing. Close must not be called by two goroutines at once.
func (m *Mapping) Close() error {
	if m.whole == nil {
		return nil
	}
	err := unix.Munmap(m.whole)
	m.mem, m.whole = nil, nil
	return opErr("unmap", m.path, err)
}

// Guard calls use, which looks at the mapping's memory. Where the file has been cut short
// meanwhile that is a SIGBUS (mmap(2)): then use ends at that place, its deferred calls are made,
// and the error is io.ErrUnexpectedEOF. Every other panic goes on. What use has other goroutines
// or C look at is not guarded; a system call that is given such memory returns EFAULT.
func (m *Mapping) Guard(use func()) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		p := recover()
		if p == nil {
			return
		}
		fault, is := p.(interface {
			runtime.Error
			Addr() uintptr
		})
		if !is || !m.holds(fault.Addr()) {
			panic(p)
		}
		err = &opError{op: m.op, path: m.path, err: io.ErrUnexpectedEOF}
	}()
	use()
	return nil
}

// holds reports whether an address is in the mapping.
func (m *Mapping) holds(addr uintptr) bool {
	return m.whole != nil && addr-reflect.ValueOf(m.whole).Pointer() < uintptr(len(m.whole))
}

// newMapping maps length bytes of a file from off on, and with them all of their pages, which
// are of unit bytes.
func newMapping(fd int, off int64, length, unit, protection int) (*Mapping, error) {
	before := int(off % int64(unit))
	whole, err := unix.Mmap(fd, off-int64(before), roundUp(before+length, unit), protection, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	return &Mapping{off: off, mem: whole[before : before+length : before+length], whole: whole}, nil
}

func roundUp(n, unit int) int { return (n + unit - 1) / unit * unit }

// populate makes the page tables of a mapping (MADV_POPULATE_READ or MADV_POPULATE_WRITE,
// madvise(2)). Linux does so from 5.14 on; before, whoever registers the memory makes them.
// io.ErrUnexpectedEOF: the file has been cut short.
func (m *Mapping) populate(advice int) error {
	err := uninterrupted(func() error { return unix.Madvise(m.whole, advice) })
	switch err {
	case unix.EINVAL:
		return nil
	case unix.EFAULT:
		return io.ErrUnexpectedEOF
	}
	return err
}

// mappable is what is known of how a file can be mapped.
type mappable struct {
	find sync.Once
	// unit is the size of the file's pages in bytes, or 0 where it is not mapped.
	unit int
}

// IsMappable reports whether Map can give a device the file's own pages: it lies in memory (tmpfs
// or hugetlbfs), its tree is read by IOAuto or IORegistered, and it has no holes. A device
// that reads a hole of a tmpfs has the kernel fill it. Of a ramfs nobody can tell whether files
// have holes, and pages of a file on DAX cannot be pinned for long (check_vma_flags, Linux 6.18),
// so these have none of this. The first call asks the kernel.
func (f *File) IsMappable() bool { return f.mapUnit() > 0 }

func (f *File) mapUnit() int {
	f.mapped.find.Do(func() {
		if !registers(f.tree.io) || f.opened.Size == 0 {
			return
		}
		var st unix.Statx_t
		err := uninterrupted(func() error { return unix.Statx(f.fd, "", unix.AT_EMPTY_PATH, unix.STATX_BLOCKS, &st) })
		if err != nil || st.Mask&unix.STATX_BLOCKS == 0 || st.Blocks < uint64(f.opened.Size+511)/512 {
			return
		}
		switch fsType := int64(f.tree.fileSystems.typeOf(f.opened.Dev, f.fd)); {
		case fsType == unix.HUGETLBFS_MAGIC:
			f.mapped.unit = hugePageBytes(f.fd)
		case fsType == unix.TMPFS_MAGIC:
			f.mapped.unit = os.Getpagesize()
		}
	})
	return f.mapped.unit
}

// hugePageBytes is the size of the pages of a file of a hugetlbfs, or 0.
func hugePageBytes(fd int) int {
	return int(statfs(fd).Bsize)
}

// Map maps n bytes of the file from off on to be read, and what is before them in their page. Of
// a huge page it gives no more than that: a device that is to read a part of it need not have it
// all. It ends where the file did when it was opened. The memory is not looked at, so a
// file that has been cut short since is no error here: Guard tells it. EOPNOTSUPP: IsMappable
// says no.
func (f *File) Map(off int64, n int) (*Mapping, error) {
	unit := f.mapUnit()
	switch {
	case unit == 0:
		return nil, opErr("map", f.path, unix.EOPNOTSUPP)
	case off < 0 || n <= 0 || off >= f.opened.Size:
		return nil, opErr("map", f.path, unix.EINVAL)
	}
	end := off + min(int64(n), f.opened.Size-off)
	from := off - off%int64(os.Getpagesize())
	m, err := newMapping(f.fd, from, int(end-from), unit, unix.PROT_READ)
	if err != nil {
		return nil, opErr("map", f.path, err)
	}
	m.op, m.path = "read", f.path
	return m, nil
}

// NoteMapped counts bytes that a device has read from a mapping of the file.
func (f *File) NoteMapped(n int) { f.tree.read.Add(fileset.IORegistered, n) }

// IsMappable reports whether Map can give a device the file's own pages to write to: the file is
// being written, began empty, lies in a tmpfs, gets no holes (ExpectHoles), and its sink writes
// by IOAuto or IORegistered. A hugetlbfs is none of these: it has no write(2), by which a file's end, and what
// comes another way, is written.
func (t *Temp) IsMappable() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.state == tempOpen && t.isMappable()
}

// isMappable is IsMappable for a file that is being written. The caller holds mu.
func (t *Temp) isMappable() bool {
	return registers(t.sink.opt.IO) && !t.sparse && !t.resumed && !t.IsCopy() && t.sink.deviceOf(t.dir).rungs.fsType == unix.TMPFS_MAGIC
}

// Map maps n bytes of the file from off on, both whole pages within the entry's size, to be
// written. They get their space at once (ErrNoSpace), and their pages, so that writing to them
// faults no more; the file is at least so long from then on. Finish, Publish, Discard and Keep do
// not unmap it: close it before. What was written counts once Landed has said so. A range that a
// device has written to and that does not count must be written again, all of it, by Landed or
// WriteAt: it does not read as zeros. EOPNOTSUPP: IsMappable says no.
func (t *Temp) Map(off int64, n int) (*Mapping, error) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	page := os.Getpagesize()
	if n <= 0 || n%page != 0 || off%int64(page) != 0 {
		return nil, opErr("map", t.place, unix.EINVAL)
	}
	if err := t.checkRange(n, off); err != nil {
		return nil, err
	}
	if !t.isMappable() {
		return nil, opErr("map", t.place, unix.EOPNOTSUPP)
	}
	t.origin.dirty.Store(true)
	err := t.io.mapped.allocate(t, off, int64(n))
	if err != nil {
		return nil, opErr("write", t.place, err)
	}
	m, err := newMapping(t.fd, off, n, page, unix.PROT_READ|unix.PROT_WRITE)
	if err != nil {
		return nil, opErr("map", t.place, err)
	}
	m.op, m.path = "write", t.place
	if err := m.populate(unix.MADV_POPULATE_WRITE); err != nil {
		_ = m.Close()
		return nil, opErr("map", t.place, err)
	}
	return m, nil
}

// Landed notes that a device has written n bytes from off on to a mapping of the file, and that
// they were verified: they count as if WriteAt had written them. The errors are those of WriteAt.
func (t *Temp) Landed(off int64, n int) error {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if n < 0 {
		return opErr("write", t.place, unix.EINVAL)
	}
	if err := t.checkRange(n, off); err != nil {
		return err
	}
	t.sink.wrote.Add(fileset.IORegistered, n)
	t.arrived(off, n)
	return nil
}

// mappedSpace is the space that the mappings of a Temp have been given.
type mappedSpace struct {
	mu  sync.Mutex
	dev *deviceRungs // nil before the first
	// end is the furthest end that a mapping was to have, whether it got there or not.
	end int64
	// ahead is how much of the space from begin up to counted is not written. A range that begins
	// before counted may have its space already, and adds nothing there: less counts as free then.
	begin, counted, ahead int64
}

// allocate gives a range of the file its space. It is counted before it is there, as by
// directWriter.allocateTo.
func (s *mappedSpace) allocate(t *Temp, off, n int64) error {
	more := s.count(&t.sink.deviceOf(t.dir).rungs, off, off+n)
	err := uninterrupted(func() error { return unix.Fallocate(t.fd, 0, off, n) })
	if err != nil {
		s.uncount(off+n, more)
	}
	return err
}

// count adds a range to what is allocated and not written, and returns how much it added.
func (s *mappedSpace) count(dev *deviceRungs, off, end int64) (more int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dev == nil {
		s.dev, s.begin = dev, off
	}
	s.begin = min(s.begin, off)
	more = max(end-max(off, s.counted), 0)
	s.end, s.counted = max(s.end, end), max(s.counted, end)
	s.add(more)
	return more
}

// uncount is the inverse of count for a range that got no space.
func (s *mappedSpace) uncount(end, more int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(-min(more, s.ahead))
	if s.counted == end {
		s.counted -= more
	}
}

// reached is the furthest end that space was allocated up to, or tried to be: the file may be as
// long. The caller holds mu, and no write is under way.
func (t *Temp) reached() int64 { return max(t.io.reached, t.io.mapped.end) }

// add counts space that is not written. The caller holds mu.
func (s *mappedSpace) add(n int64) {
	s.ahead += n
	s.dev.aheadBytes.Add(n)
}

// spent notes that n bytes of the file from off on were written. What lies before the mappings
// has its space from elsewhere.
func (s *mappedSpace) spent(off, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.dev != nil {
		s.add(-min(max(min(off+n, s.counted)-max(off, s.begin), 0), s.ahead))
	}
}
