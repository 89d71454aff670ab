package chunker

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// Source is something to copy and the name that it gets at the top of the tree.
type Source struct {
	// Path is a local path, or for OpenRooted one below the served root
	// ("/x" and "x" are the same there).
	Path string
	// Name is one path component. Name "." means that a directory is the top
	// of the tree itself, with the entry path "."; it must then be the only
	// source. With Name "." anything but a directory is named after Path.
	Name string
}

// BaseName is the name that a source gets at the destination: "." for a path that
// has no name of its own, whose contents go into the destination.
func BaseName(path string) string {
	b := filepath.Base(path)
	if b == "/" || b == ".." || strings.HasSuffix(path, "/.") {
		return "."
	}
	return b
}

// source is a Source and its place: leaf in the directory that the cache has under key.
type source struct {
	Source
	key  string // "\x00" + directory: no entry's path begins so
	leaf string
	// problem is why the source is not to be copied, see Refuse.
	problem error
}

// Tree is the source side of a copy. Many goroutines may use it at once.
type Tree struct {
	root   *os.Root // nil: the user's own files
	follow bool
	// userXattrsOnly: see UserXattrsOnly.
	userXattrsOnly bool
	sources        []source
	byName         map[string]int
	again          map[string][]string // paths of later sources with a name that is taken
	isTop          bool                // the one source is the top of the tree
	dirs           *dirs.Cache[*dirs.Dir]
	files          budgetedFiles
	io             fileset.IOMode
	read           fileset.IOBytes
	fileSystems    fileSystems
	// CachedBytes is CachedBytes, or what a test has in its place.
	cachedBytes func(fd int, off, n int64) (int64, error)
}

// OpenLocal returns the tree of the user's own files. With follow, links are followed
// wherever they lead (-L). A copy without recursion follows links too, as cp(1) does:
// then only named files are entries. Walk reports a source that is missing, so that the
// others can be copied.
func OpenLocal(sources []Source, follow bool) (*Tree, error) {
	return openTree(nil, sources, follow)
}

// OpenRooted returns the tree of files that a peer named. root resolves the sources;
// with follow, links are followed only inside root. ErrEscape: a source names a place
// outside root. The caller keeps root open until the Tree is closed, and then closes
// root.
func OpenRooted(root *os.Root, sources []Source, follow bool) (*Tree, error) {
	if root == nil {
		return nil, errors.New("open tree: no root given")
	}
	return openTree(root, sources, follow)
}

func openTree(root *os.Root, sources []Source, follow bool) (*Tree, error) {
	t := &Tree{root: root, follow: follow, byName: make(map[string]int), again: make(map[string][]string), cachedBytes: fsys.CachedBytes}
	t.dirs = dirs.NewCache(dirs.MaxOpen(), t.openDir)
	for _, given := range sources {
		s, err := t.prepare(given)
		if err != nil {
			return nil, err
		}
		if s.Name == "." {
			if len(sources) > 1 {
				return nil, errors.New("open tree: of several sources none can be the top of the tree")
			}
			if err := t.placeTop(&s); err != nil {
				return nil, err
			}
		} else if err := fileset.CheckName("open source", s.Name); err != nil {
			return nil, err
		}
		if _, taken := t.byName[s.Name]; taken {
			t.again[s.Name] = append(t.again[s.Name], s.Path)
			continue
		}
		t.byName[s.Name] = len(t.sources)
		t.sources = append(t.sources, s)
	}
	return t, nil
}

func (t *Tree) prepare(given Source) (source, error) {
	s := source{Source: given}
	if given.Path == "" || strings.IndexByte(given.Path, 0) >= 0 {
		return s, fileset.OpErr("open source", given.Path, unix.ENOENT)
	}
	if t.root == nil {
		s.key, s.leaf = "\x00", given.Path
		return s, nil
	}
	path, err := fileset.UnderRoot(given.Path)
	if err != nil {
		return s, err
	}
	s.Path = path
	dir, leaf := fileset.CutLeaf(path)
	s.key, s.leaf = "\x00"+dir, leaf
	return s, nil
}

// placeTop finds out whether the source named "." is a directory. If so, it is the top
// of the tree; else placeTop gives it the name that its path ends in.
func (t *Tree) placeTop(s *source) error {
	t.sources, t.isTop = []source{*s}, true
	defer func() { t.sources = nil }()
	a, err := t.lookUp(".")
	if err == nil && a.isDir() {
		return nil
	}
	t.isTop = false
	s.Name = filepath.Base(s.Path)
	return fileset.CheckName("open source", s.Name)
}

// Close frees what the tree holds open. Files opened from it stay open.
func (t *Tree) Close() error {
	t.dirs.Close()
	return nil
}

// Refuse makes later walks report why as the Problem of a source. The source must be a
// file or a link, and one of several.
func (t *Tree) Refuse(path string, why error) {
	for i := range t.sources {
		if t.sources[i].Path == path {
			t.sources[i].problem = why
		}
	}
}

// HasTop reports whether the one source is a directory, which is the entry ".".
func (t *Tree) HasTop() bool { return t.isTop }

// sourceAt returns the source whose own entry has the path, or nil.
func (t *Tree) sourceAt(path string) *source {
	if t.isTop {
		if path == "." {
			return &t.sources[0]
		}
		return nil
	}
	if i, ok := t.byName[path]; ok {
		return &t.sources[i]
	}
	return nil
}

// locate returns the directory that holds an entry, with a reference, and the
// entry's name in it. The path has been checked.
func (t *Tree) locate(path string) (*dirs.Dir, string, error) {
	key, leaf := fileset.SplitPath(path)
	if s := t.sourceAt(path); s != nil {
		key, leaf = s.key, s.leaf
	} else if key == "." && !t.isTop {
		return nil, "", unix.ENOENT
	}
	h, err := t.dirs.Get(key)
	return h, leaf, err
}

// Dir opens a directory from the one above it, which the tree may have open: from the top each
// would cost its depth. done closes it.
func (t *Tree) Dir(path string) (fd int, done func(), err error) {
	h, err := t.dirs.Get(path)
	if err != nil {
		return -1, nil, fileset.OpErr("open directory", path, err)
	}
	return h.FD, h.Release, nil
}

// openDir opens a directory for the cache.
func (t *Tree) openDir(path string) (*dirs.Dir, error) {
	if dir, ok := strings.CutPrefix(path, "\x00"); ok {
		if t.root == nil {
			return dirs.Relative(path), nil
		}
		fd, err := fsys.OpenUnderRoot(t.root, dir, unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			return nil, err
		}
		return dirs.Keep(fd, path)
	}
	parent, leaf, err := t.locate(path)
	if err != nil {
		return nil, err
	}
	defer parent.Release()
	return t.openDirAt(parent, leaf, path, false)
}

// openDirAt opens a directory. If lists is false, it may be one that can be searched and not
// read: what is named in it, as by --files-from, can be reached all the same.
func (t *Tree) openDirAt(parent *dirs.Dir, leaf, path string, lists bool) (*dirs.Dir, error) {
	fd, err := t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_DIRECTORY)
	if err == unix.EACCES && !lists {
		fd, err = t.openEntry(parent, leaf, path, unix.O_PATH|unix.O_DIRECTORY)
	}
	if err != nil {
		return nil, err
	}
	return dirs.Keep(fd, path)
}

// openEntry opens leaf in parent. Without follow a link is an error. With it,
// the kernel follows the user's own links, and os.Root those below a root: by
// the path from the root, since a link may lead anywhere inside it.
func (t *Tree) openEntry(parent *dirs.Dir, leaf, path string, flags int) (int, error) {
	flags |= unix.O_NONBLOCK | unix.O_CLOEXEC
	if t.follow && t.root == nil {
		return fsys.Openat(parent.FD, leaf, flags, 0)
	}
	fd, err := fsys.Openat(parent.FD, leaf, flags|unix.O_NOFOLLOW, 0)
	if t.follow && (err == unix.ELOOP || err == unix.ENOTDIR) {
		return fsys.OpenUnderRoot(t.root, t.pathUnderRoot(path), flags)
	}
	return fd, err
}

func (t *Tree) pathUnderRoot(path string) string {
	if t.isTop {
		return fileset.JoinPath(strings.TrimRight(t.sources[0].Path, "/"), path)
	}
	name, rest, below := strings.Cut(path, "/")
	s := t.sourceAt(name)
	if !below {
		return s.Path
	}
	return fileset.JoinPath(strings.TrimRight(s.Path, "/"), rest)
}

// attributes are the parts of stat(2) that a walk needs.
type attributes struct {
	mode   uint32
	stamp  fileset.Stamp
	blocks int64 // of 512 bytes
	uid    uint32
	gid    uint32
	links  uint64 // names of the inode
}

func (a *attributes) isDir() bool { return a.mode&unix.S_IFMT == unix.S_IFDIR }

func attributesOf(st *unix.Stat_t) attributes {
	return attributes{mode: st.Mode, blocks: st.Blocks, stamp: fileset.StampOf(st), uid: st.Uid, gid: st.Gid, links: uint64(st.Nlink)}
}

// lookUp returns the attributes of an entry by its path.
func (t *Tree) lookUp(path string) (attributes, error) {
	parent, leaf, err := t.locate(path)
	if err != nil {
		return attributes{}, err
	}
	defer parent.Release()
	return t.statAt(parent, leaf, path)
}

// statAt returns the attributes of leaf in parent. With follow, it follows a link.
func (t *Tree) statAt(parent *dirs.Dir, leaf, path string) (attributes, error) {
	var st unix.Stat_t
	flags := unix.AT_SYMLINK_NOFOLLOW
	if t.follow && t.root == nil {
		flags = 0
	}
	if err := fsys.Fstatat(parent.FD, leaf, &st, flags); err != nil {
		return attributes{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFLNK || !t.follow {
		return attributesOf(&st), nil
	}
	info, err := fsys.StatInside(t.root, t.pathUnderRoot(path))
	if err != nil {
		return attributes{}, fsys.RootErr(err)
	}
	followed, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return attributes{}, unix.ENOTSUP
	}
	return attributes{mode: followed.Mode, blocks: followed.Blocks, uid: followed.Uid, gid: followed.Gid, links: uint64(followed.Nlink), stamp: fileset.Stamp{
		Size:    followed.Size,
		MtimeNs: fsys.Nanoseconds(unix.Timespec(followed.Mtim)),
		CtimeNs: fsys.Nanoseconds(unix.Timespec(followed.Ctim)),
		Ino:     followed.Ino, Dev: followed.Dev,
	}}, nil
}

// lost is OpErr for an entry that was found before: ErrVanished if nothing has its name
// now. A link that leads to nothing still counts as found.
func (t *Tree) lost(op, path string, err error) error {
	if !errors.Is(err, unix.ENOENT) {
		return fileset.OpErr(op, path, err)
	}
	parent, leaf, lookErr := t.locate(path)
	if lookErr == nil {
		defer parent.Release()
		var st unix.Stat_t
		lookErr = fsys.Fstatat(parent.FD, leaf, &st, unix.AT_SYMLINK_NOFOLLOW)
	}
	if !errors.Is(lookErr, unix.ENOENT) {
		return fileset.OpErr(op, path, err)
	}
	return &fileset.OpError{Op: op, Path: path, Err: ErrVanished}
}

const (
	// leasePatience is how long Open waits for a lease to be given up: longer
	// than /proc/sys/fs/lease-break-time, which is 45 s if nobody changed it.
	leasePatience = 60 * time.Second
	leasePause    = 10 * time.Millisecond
)

// openFile opens what should be a regular file. O_NONBLOCK keeps the open from blocking
// if it is something else. It also keeps the kernel from waiting for the holder of a
// lease on the file (a file server, fcntl(2)), which the kernel has just asked to give
// the lease up.
func (t *Tree) openFile(parent *dirs.Dir, leaf, path string) (int, error) {
	for waited := time.Duration(0); ; waited += leasePause {
		fd, err := t.openEntry(parent, leaf, path, unix.O_RDONLY)
		if err != unix.EAGAIN || waited >= leasePatience {
			return fd, err
		}
		if a, err := t.statAt(parent, leaf, path); err != nil || a.mode&unix.S_IFMT != unix.S_IFREG {
			return -1, unix.EAGAIN
		}
		time.Sleep(leasePause)
	}
}

// Open opens a regular file by its entry's path. It never blocks on something else that
// was put in the file's place: that gives ErrChanged. ErrVanished: nothing is there. If
// another process holds a lease on the file, Open waits for up to 60 s. The caller
// closes the File, which may outlive the Tree.
func (t *Tree) Open(path string) (*File, error) {
	if err := fileset.CheckPath("open", path); err != nil {
		return nil, err
	}
	parent, leaf, err := t.locate(path)
	if err != nil {
		return nil, t.lost("open", path, err)
	}
	defer parent.Release()
	taken, err := t.files.begin(t.dirs.DropTaken)
	if err != nil {
		return nil, fileset.OpErr("open", path, err)
	}
	f, err := t.openAt(parent, leaf, path)
	if err != nil {
		t.files.end(taken)
		return nil, err
	}
	f.taken = taken
	return f, nil
}

func (t *Tree) openAt(parent *dirs.Dir, leaf, path string) (*File, error) {
	fd, err := t.openFile(parent, leaf, path)
	if err != nil {
		if err == unix.ELOOP {
			return nil, fileset.KindErr("open", path, fileset.ErrChanged)
		}
		return nil, t.lost("open", path, err)
	}
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		fsys.CloseQuietly(fd)
		return nil, fileset.OpErr("stat", path, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		fsys.CloseQuietly(fd)
		return nil, fileset.KindErr("open", path, fileset.ErrChanged)
	}
	return &File{fd: fd, path: path, opened: fileset.StampOf(&st), tree: t, direct: directReader{fd: -1, probe: -1}}, nil
}

// sortedNames returns the names at the top of the tree, in the tree's order, one for
// each source.
func (t *Tree) sortedNames() []string {
	var names []string
	for _, s := range t.sources {
		names = append(names, s.Name)
		for range t.again[s.Name] {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return names
}
