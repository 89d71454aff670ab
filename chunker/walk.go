package chunker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/chunker/internal/parallel"
	"gdrcp/chunker/internal/sorted"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// maxHeldDirs bounds the directories that a walk itself keeps open, whatever the depth.
// Directories above those are opened anew when the walk returns to them.
const maxHeldDirs = 32

// Found is an entry that a walk met.
type Found struct {
	Entry manifest.Entry
	// Stamp is the file's stamp when it was found.
	Stamp fileset.Stamp
	// Dir is the inode of the directory that has the entry's name; zero where that is not known.
	Dir manifest.Inode
	// Sparse: the file has fewer blocks than its size needs, so it may have
	// holes. It is a hint: some file systems compress or store small files inline.
	Sparse bool
	// AllocBytes is how many bytes the file takes on its disk.
	AllocBytes int64
	// UID and GID are the entry's owner and group, and Links is how many names it has.
	UID, GID uint32
	Links    uint64
	// Problem is why this entry cannot be copied. Then only Path of Entry is sure to be
	// set. A directory whose contents cannot be read, and a source whose name is taken,
	// can have a path that was found before.
	Problem error
	// Elsewhere: another file system is mounted on this directory, and the walk stays
	// out of it; see StayOnFileSystem.
	Elsewhere bool
	// Skip: the entry is only left out and reported in one line, because it is a
	// special file (ErrSpecial) or the copy itself makes it (ErrItself).
	Skip bool
}

// level is a directory on the walk's way.
type level struct {
	path    string // of its entry; "" above the sources
	dir     *dirs.Dir
	inode   manifest.Inode
	names   sorted.Names
	pending []pendingDir
	take    takeMode
	isInto  bool // the copy goes into it, see Avoid
	ahead   statAhead
}

// pendingDir is a directory whose entry was returned, and whose contents are still to
// come. Between "a" and "a/x" come "a-b" and "a.b", since '-' and '.' are less than
// '/'. Every pending directory's name begins with the name of the one before it, so
// there are few of them, and the last is always entered first.
type pendingDir struct {
	name  string
	dir   *dirs.Dir // nil when given back
	inode manifest.Inode
	take  takeMode
}

// Walker streams a tree's entries. One goroutine may use it.
type Walker struct {
	tree      *Tree
	recursive bool
	names     *sorted.Stack
	levels    []level
	last      string // at the top level, to notice equal names
	repeats   int    // how often last came before
	started   bool
	found     Found
	link      []byte
	// leavesOut reports which entries the walk passes over, see LeaveOut. It may be
	// nil.
	leavesOut func(path string, isDir bool) bool
	// staysOn: see StayOnFileSystem.
	staysOn bool
	// list holds the only names to find, see Only. Nil: everything is found.
	list *listing
	// avoid describes what the copy itself makes, see Avoid. It may be nil.
	avoid *avoided
	// ctx ends the walk, see EndWith. It may be nil.
	ctx  context.Context
	pace parallel.Pace
}

// Walk begins a walk. Entries come in strictly ascending bytewise order of
// their full paths, except that "." comes first. Without recursive a
// directory is a Problem. Close the Walker when done.
func (t *Tree) Walk(recursive bool) *Walker {
	return &Walker{tree: t, recursive: recursive, names: sorted.NewStack(), link: make([]byte, unix.PathMax)}
}

// EndWith makes Next fail with the cause of ctx once that has ended, however many names the
// walk is passing over or reading. Call EndWith before Next.
func (w *Walker) EndWith(ctx context.Context) { w.ctx, w.names.Ended = ctx, w.ended }

// ended returns the error that ends the walk, if it is to end.
func (w *Walker) ended() error {
	if w.ctx == nil || w.ctx.Err() == nil {
		return nil
	}
	return context.Cause(w.ctx)
}

// Close ends the walk and frees what it holds.
func (w *Walker) Close() error {
	for i := range w.levels {
		w.levels[i].release()
	}
	w.levels = nil
	w.started = true
	return w.names.Spill.Close()
}

func (l *level) release() {
	l.dir.Release()
	l.dir = nil
	for i := range l.pending {
		l.pending[i].dir.Release()
	}
	l.pending = nil
}

// Next returns the next entry, valid until the next call, or io.EOF. Any other
// error ends the walk; what is wrong with one entry is in Found.Problem.
func (w *Walker) Next() (*Found, error) {
	if !w.started {
		w.started = true
		if err := w.pushSources(); err != nil {
			return nil, err
		}
	}
	for len(w.levels) > 0 {
		if err := w.ended(); err != nil {
			return nil, err
		}
		l := &w.levels[len(w.levels)-1]
		if f, err := w.orphan(l); f != nil || err != nil {
			return f, err
		}
		name, more := w.peek(l)
		if n := len(l.pending); n > 0 && !(more && comesBeforeContents(l.pending[n-1].name, name)) {
			pending := l.pending[n-1]
			l.pending = l.pending[:n-1]
			if err := w.enter(l.childPath(pending.name), pending); err != nil && w.ended() == nil {
				return w.problem(l.childPath(pending.name), err), nil
			}
			continue
		}
		if !more {
			w.leave()
			continue
		}
		path := l.childPath(string(name))
		if err := w.advance(l); err != nil {
			return nil, err
		}
		if f := w.look(l, path); f != nil && !w.isUnlistedTop(f) {
			return f, nil
		}
	}
	return nil, io.EOF
}

// comesBeforeContents reports whether name, which is not less than dir, comes before
// dir + "/". The two are equal only if two sources have the same name.
func comesBeforeContents(dir string, name []byte) bool {
	if len(name) < len(dir) || string(name[:len(dir)]) != dir {
		return false
	}
	return len(name) == len(dir) || name[len(dir)] < '/'
}

func (l *level) childPath(name string) string {
	if l.path == "" {
		return name
	}
	return fileset.JoinPath(l.path, name)
}

// pushSources begins with the level above the sources.
func (w *Walker) pushSources() error {
	l := level{names: w.names.Begin()}
	for _, name := range w.tree.sortedNames() {
		if err := w.names.Add(&l.names, []byte(name)); err != nil {
			return err
		}
	}
	if err := w.names.Finish(&l.names); err != nil {
		return err
	}
	w.levels = append(w.levels, l)
	return nil
}

// enter reads a directory and makes it the level that the walk is at.
func (w *Walker) enter(path string, p pendingDir) error {
	l := level{path: path, dir: p.dir, inode: p.inode, take: p.take}
	if err := w.hold(&l); err != nil {
		return w.lost("open directory", path, err)
	}
	l.names, l.isInto = w.names.Begin(), w.avoid.holds(l.inode)
	var err error
	if p.take < takeListed {
		l.dir.Reading.Lock()
		err = w.names.ReadDir(&l.names, l.dir.FD)
		l.dir.Reading.Unlock()
	}
	if err == nil {
		err = w.names.Finish(&l.names)
	}
	if err != nil {
		w.names.Drop(&l.names)
		l.dir.Release()
		return w.lost("read directory", path, err)
	}
	w.levels = append(w.levels, l)
	if above := len(w.levels) - 1 - maxHeldDirs; above >= 0 {
		w.levels[above].dir.Release()
		w.levels[above].dir, w.levels[above].ahead = nil, statAhead{}
	}
	return nil
}

// hold opens a level's directory again after the walk closed it, and checks that it is
// still the same directory.
func (w *Walker) hold(l *level) error {
	if l.dir != nil {
		return nil
	}
	dir, err := w.tree.dirs.Get(l.path)
	if err != nil {
		return err
	}
	if dir.Inode != l.inode {
		dir.Release()
		return fileset.KindErr("open directory", l.path, fileset.ErrChanged)
	}
	l.dir = dir
	return nil
}

func (w *Walker) leave() {
	l := &w.levels[len(w.levels)-1]
	w.names.Drop(&l.names)
	l.release()
	w.levels = w.levels[:len(w.levels)-1]
}

// look returns the entry at path, whose directory is the level l, or nil if the entry
// is left out.
func (w *Walker) look(l *level, path string) *Found {
	bad := manifest.CheckPath(path)
	if l.path == "" {
		if bad != nil {
			return w.problem(path, fileset.OpErr("read", path, bad))
		}
		return w.lookAtSource(l, path)
	}
	if err := w.hold(l); err != nil {
		return w.problem(path, w.lost("read", path, err))
	}
	leaf := path
	if l.path != "." {
		leaf = path[len(l.path)+1:]
	}
	if bad != nil {
		// What is left out may be as long as it likes.
		a, err := w.tree.statAt(l.dir, leaf, path)
		if w.passesOver(path, err != nil || a.isDir(), err != nil || !a.isDir()) {
			return nil
		}
		return w.problem(path, fileset.OpErr("read", path, bad))
	}
	return w.describe(l, l.dir, leaf, path)
}

func (w *Walker) lookAtSource(l *level, path string) *Found {
	if w.repeated(path) {
		err := fmt.Errorf("source %q", w.tree.again[path][w.repeats-1])
		return w.problem(path, &fileset.OpError{Op: "copy", Path: path, Kind: ErrDuplicate, Err: err})
	}
	s := w.tree.sourceAt(path)
	if s.problem != nil {
		if w.passesOver(path, false, true) {
			return nil
		}
		return w.problem(path, s.problem)
	}
	dir, err := w.tree.dirs.Get(s.key)
	if err != nil {
		return w.problem(path, fileset.OpErr("open", path, err))
	}
	defer dir.Release()
	return w.describe(l, dir, s.leaf, path)
}

// repeated reports whether the source name was found before.
func (w *Walker) repeated(name string) bool {
	if name != w.last {
		w.last, w.repeats = strings.Clone(name), 0
		return false
	}
	w.repeats++
	return true
}

// describe fills Found for the entry that is leaf in dir.
func (w *Walker) describe(l *level, dir *dirs.Dir, leaf, path string) *Found {
	a, err := w.stat(l, dir, leaf, path)
	if w.passesOver(path, err != nil || a.isDir(), err != nil || !a.isDir()) {
		return nil
	}
	if err != nil {
		return w.problem(path, w.lost("stat", path, err))
	}
	if err == nil && l.path != "" && (fileset.IsStage([]byte(leaf)) || !a.isDir() && fileset.IsReserved([]byte(leaf))) {
		// A copy to this directory is under way, or was cut off.
		w.problem(path, fileset.KindErr("copy", path, fileset.ErrReserved)).Skip = true
		return &w.found
	}
	if w.avoid.makes(l, leaf) {
		w.problem(path, fileset.KindErr("copy", path, ErrItself)).Skip = true
		return &w.found
	}
	w.found = Found{
		Entry: manifest.Entry{Path: path, Mode: a.mode & 0o7777, MtimeNs: a.stamp.MtimeNs},
		Stamp: a.stamp, Dir: dir.Inode, UID: a.uid, GID: a.gid, Links: a.links,
	}
	f := &w.found
	switch a.mode & unix.S_IFMT {
	case unix.S_IFREG:
		f.Entry.Type = manifest.File
		f.Entry.Size = a.stamp.Size
		f.AllocBytes = a.blocks * 512
		f.Sparse = f.AllocBytes < a.stamp.Size
	case unix.S_IFDIR:
		f.Entry.Type = manifest.Dir
		f.Problem = w.expect(l, dir, leaf, path, &a)
		f.Skip = errors.Is(f.Problem, ErrItself)
	case unix.S_IFLNK:
		f.Entry.Type = manifest.Symlink
		var n int
		err := fsys.Uninterrupted(func() (err error) {
			n, err = unix.Readlinkat(dir.FD, leaf, w.link)
			return err
		})
		if err != nil {
			return w.problem(path, w.lost("read link", path, err))
		}
		f.Entry.Target = string(w.link[:n])
	default:
		f.Problem = &fileset.OpError{Op: "read", Path: path, Kind: ErrSpecial, Err: errors.New(specialName(a.mode))}
		f.Skip = true
	}
	return f
}

// expect opens a directory that was found, so that a failure to open it is known before
// its entry is returned. It notes that the directory's contents are still to come.
func (w *Walker) expect(l *level, dir *dirs.Dir, leaf, path string, a *attributes) error {
	take := w.takes(l)
	switch {
	case take == takeNothing:
		return nil
	case w.list == nil && !w.recursive:
		return fileset.KindErr("read", path, fileset.ErrIsDir)
	case take < takeListed && w.isElsewhere(l, a):
		w.found.Elsewhere = true
		if w.list == nil {
			return nil
		}
		take = takeListed
	}
	for i := range w.levels {
		if on := &w.levels[i]; on.path != "" && on.inode == a.stamp.Inode() {
			return &fileset.OpError{Op: "read", Path: path, Kind: ErrLoop, Err: unix.ELOOP}
		}
	}
	h, err := w.tree.openDirAt(dir, leaf, path, take < takeListed)
	if err != nil {
		return w.lost("open directory", path, err)
	}
	if err := w.avoid.checkDir(h, path, l.path == ""); err != nil {
		h.Release()
		return err
	}
	name := path
	if l.path != "" {
		name = leaf
	}
	if n := len(l.pending); n > 0 {
		l.pending[n-1].dir.Release()
		l.pending[n-1].dir = nil
	}
	p := pendingDir{name: name, inode: h.Inode, take: take}
	p.dir = w.tree.dirs.Add(h)
	l.pending = append(l.pending, p)
	return nil
}

// lost is the tree's lost, except for a name from the command line or from a list: no
// directory has listed that name, so it is missing and has not vanished.
func (w *Walker) lost(op, path string, err error) error {
	if w.list != nil || w.tree.sourceAt(path) != nil {
		return fileset.OpErr(op, path, err)
	}
	return w.tree.lost(op, path, err)
}

func (w *Walker) problem(path string, err error) *Found {
	w.found = Found{Entry: manifest.Entry{Path: path}, Problem: err}
	return &w.found
}

func specialName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFBLK:
		return "block device"
	case unix.S_IFCHR:
		return "character device"
	}
	return "of unknown type"
}
