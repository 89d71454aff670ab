package served

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"gdrcp/internal/fsys"

	"golang.org/x/sys/unix"
)

// Want is a directory that a key gives access to.
type Want struct {
	Key      string // the key's name
	Path     string // absolute and clean
	Writable bool
}

// Dir is a directory that is held open, or the error that prevents it. It
// remains the same Dir as long as the same directory is held for its path.
type Dir struct {
	path  string
	place place
	mount uint64
	root  *os.Root
	err   error
}

// Open returns the directory for one session, which closes it. It does not resolve the
// path again. If no directory is held, the error is a *fs.PathError with the reason.
func (d *Dir) Open() (*os.Root, error) {
	if d.err != nil {
		return nil, d.err
	}
	return d.root.OpenRoot(".")
}

// HasMoved reports whether the held directory is no longer at its path.
// Sessions continue to use it all the same.
func (d *Dir) HasMoved() bool {
	if d.err != nil {
		return false
	}
	held, err := d.root.Stat(".")
	if err != nil {
		return false
	}
	now, err := os.Stat(d.path)
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) || err == nil && !os.SameFile(held, now)
}

// Err returns the reason why the directory is not held, or nil.
func (d *Dir) Err() error { return d.err }

// entry is a directory of a Set.
type entry struct {
	dir      *Dir
	writable bool
	key      string // the first key for it, or the first that may write to it
	// Used while a set is made: links has the parents of each directory that contained a
	// link on the path, and above has the parents of the directory itself.
	links [][]place
	above []place
}

// Set holds the directories of all keys. It is immutable.
type Set struct {
	dirs   map[string]*entry // by path
	mounts mounts
	nested []Nested
	// once are the directories that earlier sets had open for writing.
	once map[place]*entry
}

// Nested is a directory below one that another key may write to.
type Nested struct {
	Key, Path           string
	OuterKey, OuterPath string
}

// Hold opens the wanted directories. If one cannot be opened, its Dir has the error, and
// the others are open. before is the current set, or nil: Hold takes over a directory that
// before holds for the same path, and follows no link below a directory that before, or an
// earlier set, had open for writing. If this process or the machine has run out of
// descriptors or memory, Hold returns that error, which is not the fault of a directory.
// Hold may block on file systems. The caller closes the set.
func Hold(wanted []Want, before *Set) (*Set, error) {
	mounts, err := mountsHere()
	if err != nil {
		return nil, err
	}
	s := &Set{dirs: make(map[string]*entry, len(wanted)), mounts: mounts}
	for _, w := range wanted {
		s.want(w)
	}
	if err := s.fits(); err != nil {
		return nil, err
	}
	for _, path := range s.paths() {
		e := s.dirs[path]
		err := e.open(s.freeOf(path), mounts)
		if scarce(err) {
			s.Close(nil)
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
		if err != nil {
			e.refuse(err)
		} else if before.heldAs(e) != nil {
			e.letGo() // immediately, because takeOver needs no second descriptor for it
		}
	}
	s.refusePlanted(before)
	s.findNested()
	s.takeOver(before)
	return s, nil
}

func (s *Set) want(w Want) {
	e := s.dirs[w.Path]
	if e == nil {
		e = &entry{dir: &Dir{path: w.Path}, key: w.Key}
		s.dirs[w.Path] = e
	}
	if w.Writable && !e.writable {
		e.writable, e.key = true, w.Key
	}
}

// fits checks that enough descriptors are left for sessions.
func (s *Set) fits() error {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		return os.NewSyscallError("getrlimit", err)
	}
	if uint64(len(s.dirs)) > r.Cur/2 {
		return fmt.Errorf("the keys open %d directories, which stay open, and this process may have %d files open: raise that limit (ulimit -n) to twice the number of directories",
			len(s.dirs), r.Cur)
	}
	return nil
}

func (s *Set) paths() []string { return slices.Sorted(maps.Keys(s.dirs)) }

// freeOf returns how many components of a path may be links: those that are not
// below the path of a writable directory.
func (s *Set) freeOf(path string) int {
	const all = unix.PathMax
	if path == "/" {
		return all
	}
	if outer := s.dirs["/"]; outer != nil && outer.writable {
		return 0
	}
	for i := 1; i < len(path); i++ {
		if path[i] != '/' {
			continue
		}
		if outer := s.dirs[path[:i]]; outer != nil && outer.writable {
			return strings.Count(path[:i], "/")
		}
	}
	return all
}

// open opens the directory, and records the path to it.
func (e *entry) open(free int, mounts mounts) error {
	fd, err := follow(e.dir.path, free, func(dir int, link bool) error {
		if !link {
			return nil
		}
		places, err := mounts.above(dir)
		e.links = append(e.links, places)
		return err
	})
	if err != nil {
		return err
	}
	defer fsys.CloseQuietly(fd)
	st, err := statusOf(fd)
	if err != nil {
		return err
	}
	if e.above, err = mounts.above(fd); err != nil { // for example if it is not a directory; opening that could block
		return err
	}
	e.dir.place, e.dir.mount = st.place, st.mount
	e.dir.root, err = openRoot(fd)
	return err
}

// refuse marks the directory as unavailable, because of err.
func (e *entry) refuse(err error) {
	e.letGo()
	e.dir.err = &fs.PathError{Op: "open", Path: e.dir.path, Err: err}
}

// letGo closes the directory that open opened.
func (e *entry) letGo() {
	e.dir.close()
	e.dir.root = nil
}

// writable lists the directories that are open for writing, keyed by place.
func (s *Set) writable() map[place]*entry {
	found := make(map[place]*entry)
	if s == nil {
		return found
	}
	for _, path := range s.paths() {
		e := s.dirs[path]
		if _, ok := found[e.dir.place]; e.writable && e.dir.err == nil && !ok {
			found[e.dir.place] = e
		}
	}
	return found
}

// refusePlanted refuses directories that were reached through a link below a
// writable directory, even if that directory is refused, too: it cannot be
// determined which of the two existed first.
func (s *Set) refusePlanted(before *Set) {
	s.once = before.writable()
	if before != nil {
		maps.Copy(s.once, before.once)
	}
	writable := s.writable()
	maps.Copy(writable, s.once)
	var planted []*entry
	for _, e := range s.dirs {
		if e.dir.err == nil && slices.ContainsFunc(e.links, func(places []place) bool { return firstIn(writable, places) != nil }) {
			planted = append(planted, e)
		}
	}
	for _, e := range planted {
		e.refuse(errPlanted)
	}
}

// firstIn returns the nearest of the entries that are at one of the places.
func firstIn(entries map[place]*entry, places []place) *entry {
	for _, p := range places {
		if e := entries[p]; e != nil {
			return e
		}
	}
	return nil
}

// findNested records the directories below a writable directory, and drops the
// data that only this needed.
func (s *Set) findNested() {
	writable := s.writable()
	for _, path := range s.paths() {
		e := s.dirs[path]
		if e.dir.err == nil {
			if outer := firstIn(writable, e.above[1:]); outer != nil {
				s.nested = append(s.nested, Nested{Key: e.key, Path: path, OuterKey: outer.key, OuterPath: outer.dir.path})
			}
		}
		e.links, e.above = nil, nil
	}
}

// heldAs returns the Dir by which the set, which may be nil, holds the directory that e
// has found at its path. It returns nil if the set holds none, or another one.
func (s *Set) heldAs(e *entry) *Dir {
	if s == nil || e.dir.err != nil {
		return nil
	}
	old := s.dirs[e.dir.path]
	if old == nil || old.dir.err != nil || old.dir.place != e.dir.place || old.dir.mount != e.dir.mount {
		return nil
	}
	return old.dir
}

// takeOver keeps the Dirs of directories that before already holds.
func (s *Set) takeOver(before *Set) {
	for _, e := range s.dirs {
		if d := before.heldAs(e); d != nil {
			e.dir = d
		}
	}
}

// Dir returns the Dir for a wanted path.
func (s *Set) Dir(path string) *Dir { return s.dirs[path].dir }

// Nested lists the directories below others that are served for writing, in the
// order of paths. The caller must not change it.
func (s *Set) Nested() []Nested { return s.nested }

// Missing lists the directories that are not held, in the order of paths: one
// key for each, and the reason.
func (s *Set) Missing() (keys []string, why []error) {
	for _, path := range s.paths() {
		if e := s.dirs[path]; e.dir.err != nil {
			keys, why = append(keys, e.key), append(why, e.dir.err)
		}
	}
	return keys, why
}

// Close closes the directories that next, which may be nil, has not taken over.
// Sessions that have opened a directory can continue to use it.
func (s *Set) Close(next *Set) {
	for path, e := range s.dirs {
		if next != nil && next.dirs[path] != nil && next.dirs[path].dir == e.dir {
			continue
		}
		e.dir.close()
	}
}

func (d *Dir) close() {
	if d.root != nil {
		_ = d.root.Close() // nothing was written through it
	}
}
