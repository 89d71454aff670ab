package dest

import (
	"cmp"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/chunker"
	"gdrcp/chunker/internal/dirs"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Options say where a copy goes and what is kept of the source.
type Options struct {
	// Root is the served root if a peer names the destination. Links inside it are
	// followed; none leads out of it. Nil: Dest is the user's own local path. The
	// caller closes Root, after the Sink.
	Root *os.Root
	// Unprivileged: the source may not make files whose rights are not its own. Set-ID bits,
	// except those of directories outside a Root, and extended attributes outside the user
	// namespace are not kept. Root implies it.
	Unprivileged bool
	// Dest is the target as the user gave it; below Root "/x" and "x" are the same.
	Dest string
	// MustBeDir: Dest has to be a directory, as with several sources. A
	// trailing slash of Dest says the same.
	MustBeDir bool
	// MustBeFile: Dest has to be a file's name, whether the file exists or not: the
	// source has no name of its own to get in a directory.
	MustBeFile bool
	// Itself: Dest is the copy itself, also where a directory is there already. Without
	// it the copy would get its name in that directory.
	Itself bool
	// Whole, unless nil, makes the copy of a directory appear under its name at once, by
	// Commit. Dest is then the copy itself.
	Whole *Whole
	// Scratch: Dest is named by ScratchName.
	Scratch bool
	// Keep is what is kept of the source's metadata.
	Keep Keep
	// RequireAttributes lets an entry fail that does not get all attributes that are kept.
	// Otherwise the sink makes the entry, and counts what it lacks: see TakeUnkept. An owner,
	// group or mode that cannot be set then only takes rights away.
	RequireAttributes bool
	// PartialDir says where partial files and their journals lie: in one directory, if it
	// is an absolute path, or in a directory of that name beside each target. It is as
	// CheckPartialDir wants it. Below Root, an absolute path begins there. The directory is
	// made, and one beside a target goes when it is empty. Empty: beside the targets.
	PartialDir string
	// Spare is a path of this host at which the copy's own manifest will be, or empty.
	Spare string
	// OnlyLooks: it is a dry run, and nothing is to be made.
	OnlyLooks bool
	// NoFsync leaves it to the kernel when published files reach the disk.
	NoFsync bool
	// Synced, unless nil, is told how long each step took that brings something to the
	// disk, also from several goroutines at once.
	Synced func(took time.Duration)
	// IO is the rung by which files are written. Any but IOAuto is forced: where the
	// file system does not have it, a write that could take it is an ErrNoIOMode. Small
	// files, and the ends of others, go through the page cache.
	IO fileset.IOMode
}

// Sink is where a tree's entries are written. After Place many goroutines may use it at
// once, as long as a directory is made before what is in it.
type Sink struct {
	opt      Options
	dest     string // as given, for messages
	base     *dirHandle
	basePath string   // by which base was opened
	leaf     string   // name of Dest in base, or "" if base is Dest itself
	missing  bool     // nothing is at leaf
	adopts   bool     // a directory is at leaf, and the copy goes on in it
	special  *Special // a device or fifo that the destination is, or nil
	// oneByOne: the file system lets only one thread at a time write to a file.
	oneByOne bool
	wrote    fileset.IOBytes

	placed bool
	many   bool   // several sources: the copy must not change the top
	single string // the one entry path there may be, when a file is copied
	prefix string // stands before every entry's path, below base
	// top is the directory at prefix, once this copy has made or adopted it.
	top atomic.Pointer[manifest.Inode]

	dirs *dirs.Cache[*dirHandle]

	stage *stage   // of a tree that is to appear whole, or nil
	old   *oldTree // that such a tree would replace, or nil

	partials partialPlace

	spared manifest.FileName // of Options.Spare

	// keepsAll: existing files and links stay as they are; only directories may change.
	keepsAll bool

	deletes *DeleteRules // nil: nothing is removed
	removed atomic.Int64 // counted where deletes bounds it

	unsettled func(entry string, err error) // or nil; see TellUnsettled
	unkept    unkept

	watch Watch
	// lockWait is how long Resume may still wait for another copy to let go of partial
	// files.
	lockWait time.Duration
	// inPlaceWait is the same for files that are written in place, in nanoseconds.
	inPlaceWait atomic.Int64
	hosts       *otherHosts
	lookPace    sharedPace // of Look
	settled     settledStamps
	calls       diskCalls
	places      *readPlaces  // of what is read back
	ahead       atomic.Int64 // runs of pieces that arrived behind gaps; see maxAhead
	syncing     sync.Mutex   // held while publishing or syncing; locked before mu and the locks of files

	mu        sync.Mutex
	made      []madeEntry // see Unmake
	madeBytes int         // see maxMadeBytes
	staysMade bool
	settle    []dirToSettle // sorted by path
	devices   map[uint64]*device
	closed    bool

	fileSystems map[uint64]*FileSystem // by device; see freespace.go

	foldingDirs map[manifest.Inode]struct{} // see foundFolding
	spellings   spellings
	naming      sync.Mutex // see holdNames; locked after syncing and the locks of files
}

// ReadAtOnce bounds how many pieces of files are read back at once, each into memory of its own.
// Call it before any file is written.
func (s *Sink) ReadAtOnce(pieces int) { s.places = newReadPlaces(pieces) }

// Open looks at the destination. It opens the destination if that is a directory,
// else the directory above it, which must exist.
func Open(opt Options) (*Sink, error) {
	s := &Sink{
		opt: opt, dest: opt.Dest, hosts: newOtherHosts(), lockWait: defaultLockWait, calls: kernelCalls(),
		places:  newReadPlaces(chunker.DiskWorkers()),
		devices: make(map[uint64]*device), fileSystems: make(map[uint64]*FileSystem),
	}
	if opt.Spare != "" {
		s.spared = manifest.NameTaken(opt.Spare)
	}
	s.inPlaceWait.Store(int64(defaultLockWait))
	s.dirs = dirs.NewCache(dirs.MaxOpen(), s.openDir)
	path := opt.Dest
	if opt.Root != nil {
		s.opt.Unprivileged = true
		var err error
		if path, err = fileset.UnderRoot(path); err != nil {
			return nil, err
		}
		if leadsThroughStage(path) {
			return nil, fileset.KindErr("open destination", opt.Dest, fileset.ErrReserved)
		}
	} else if path == "" || strings.IndexByte(path, 0) >= 0 {
		return nil, fileset.OpErr("open destination", opt.Dest, unix.ENOENT)
	}
	if strings.HasSuffix(opt.Dest, "/") {
		s.opt.MustBeDir = true
	}
	if trimmed := strings.TrimRight(path, "/"); trimmed != "" {
		path = trimmed
	}
	if err := s.openBase(path); err != nil {
		return nil, errors.Join(fileset.OpErr("open destination", opt.Dest, err), s.Close())
	}
	return s, nil
}

// Into returns the directory that the copy goes into, and the name that the copy gets
// there. The name is empty if the destination is that directory itself.
func (s *Sink) Into() (dir manifest.Inode, leaf string) { return s.base.Inode, s.leaf }

// openBase opens path, or the directory it is in if it is not a directory.
func (s *Sink) openBase(path string) error {
	s.basePath = path
	fd, err := s.openGiven(path)
	isDir := err == nil
	if isDir && s.isItself() {
		fsys.CloseQuietly(fd)
	}
	if err == unix.ENOENT || err == unix.ENOTDIR || isDir && s.isItself() {
		dir, leaf := fileset.CutLeaf(path)
		s.missing = err == unix.ENOENT
		s.adopts = isDir
		if leaf == "." {
			return cmp.Or(err, kindOf(ErrBadTop, "it has no name of its own"))
		}
		s.leaf, s.basePath = leaf, dir
		if fd, err = s.openGiven(dir); err == unix.ENOENT {
			above, _ := fileset.CutLeaf(strings.TrimRight(s.dest, "/"))
			return &noDirError{strings.TrimRight(above, "/")}
		}
	}
	if err != nil {
		return err
	}
	if s.base, err = newDirHandle(fd, "."); err != nil {
		return err
	}
	s.base.searchOnly = isPathOnly(fd)
	if s.opt.Scratch && s.base.onlyAdds() {
		return errOnlyAdds
	}
	if err := s.keepDevice(s.base); err != nil {
		return err
	}
	s.oneByOne = !fsys.WritesAtOnce(fsys.Statfs(fd).Type)
	if err := s.lookSpecial(); err != nil {
		return err
	}
	if err := s.placePartials(); err != nil {
		return err
	}
	if s.opt.Whole != nil {
		return s.beginStage()
	}
	return nil
}

// noDirError is the error of a destination in a directory that does not exist.
type noDirError struct{ dir string }

func (e *noDirError) Error() string {
	return "the directory " + strconv.Quote(e.dir) + " does not exist: make it first"
}

func (*noDirError) Unwrap() error { return unix.ENOENT }

// isItself reports whether the destination is the copy itself, and never a directory
// that the copy goes into.
func (s *Sink) isItself() bool { return s.opt.Itself || s.opt.Whole != nil }

// openGiven opens a directory that the user or peer named. It follows links; for a peer
// only inside the root.
func (s *Sink) openGiven(path string) (int, error) {
	open := func(flags int) (int, error) {
		if s.opt.Root != nil {
			return fsys.OpenUnderRoot(s.opt.Root, path, flags)
		}
		return fsys.Openat(unix.AT_FDCWD, path, flags, 0)
	}
	fd, err := open(unix.O_RDONLY | unix.O_DIRECTORY | unix.O_CLOEXEC)
	if err == unix.EACCES {
		return openSearchOnly(open, err)
	}
	return fd, err
}

// target checks an entry's path and turns it into one below base.
func (s *Sink) target(op, path string) (string, error) {
	if !s.placed {
		return "", errors.New(op + ": the sink has no place yet")
	}
	s.keepStageYoung()
	if err := fileset.CheckPath(op, path); err != nil {
		return "", err
	}
	if leadsThroughStage(path) || s.leadsThroughPartials(path) {
		return "", fileset.KindErr(op, path, fileset.ErrReserved)
	}
	switch {
	case s.many && path == ".":
		return "", fileset.KindErr(op, path, fsys.ErrEscape)
	case s.single != "":
		if path != s.single {
			return "", fileset.KindErr(op, path, fsys.ErrEscape)
		}
		return s.prefix, nil
	case s.prefix == "":
		return path, nil
	case path == ".":
		return s.prefix, nil
	}
	return s.prefix + "/" + path, nil
}

// entryPath is the inverse of target, for messages.
func (s *Sink) entryPath(target string) string {
	switch {
	case s.prefix == "":
		return target
	case s.single != "":
		return s.single
	case target == s.prefix:
		return "."
	}
	return strings.TrimPrefix(target, s.prefix+"/")
}

// placeOf is how messages name an entry's place: by the entry's path in the tree, or by the
// destination where that is the name of the one file or link that is copied.
func (s *Sink) placeOf(path string) string {
	if s.single != "" && s.leaf != "" {
		return s.dest
	}
	return path
}

// dir returns the directory at target, with a reference.
func (s *Sink) dir(target string) (*dirHandle, error) {
	if target == "." {
		return s.base.retain(), nil
	}
	return s.dirs.Get(target)
}

// checkStillAt checks that the directory want is still at target. It opens the path
// anew, through no link, from base, and uses no cached directory. ErrChanged: something
// else is there. The base itself is not looked for again, wherever it is now.
func (s *Sink) checkStillAt(target string, want manifest.Inode) error {
	const flags = unix.O_PATH | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd := s.base.FD
	closeIt := func() {
		if fd != s.base.FD {
			fsys.CloseQuietly(fd)
		}
	}
	for name := range strings.SplitSeq(target, "/") {
		next, err := fsys.Openat(fd, name, flags, 0)
		closeIt()
		switch err {
		case nil:
		case unix.ENOENT, unix.ENOTDIR, unix.ELOOP:
			return fileset.ErrChanged
		default:
			return err
		}
		fd = next
	}
	defer closeIt()
	var st unix.Stat_t
	if err := fsys.Fstat(fd, &st); err != nil {
		return err
	}
	if fileset.InodeOf(&st) != want {
		return fileset.ErrChanged
	}
	return nil
}

// parentOf returns the directory that an entry goes into, with a reference, and the
// entry's name in it. Only a directory may have the name of a temporary file: a sweep
// would remove anything else.
func (s *Sink) parentOf(op, path string) (*dirHandle, string, error) {
	target, err := s.target(op, path)
	if err != nil {
		return nil, "", err
	}
	dir, leaf := fileset.SplitPath(target)
	if target == "." {
		return nil, "", fileset.KindErr(op, path, fileset.ErrIsDir)
	}
	if fileset.IsReserved([]byte(leaf)) && !s.opt.Scratch {
		return nil, "", fileset.KindErr(op, path, fileset.ErrReserved)
	}
	h, err := s.dir(dir)
	if err != nil {
		return nil, "", fileset.WithinErr(op, path, err)
	}
	return h, leaf, nil
}

// KeepExisting lets nothing be replaced. ErrKept: something has the name of a file or
// link when that is to get its name, or something else has a directory's name. Call it
// only before Place.
func (s *Sink) KeepExisting() { s.keepsAll = true }

// Close frees what the sink holds open. It publishes nothing and settles no directory:
// after a successful copy, call FinishDirs first. A directory that existed before and
// is not settled gets back its former mode, and one that was made, where modes are not kept,
// the mode of a new one. Every Temp must have been published or
// discarded.
func (s *Sink) Close() error {
	s.mu.Lock()
	was := s.closed
	s.closed = true
	left := s.settle
	s.settle = nil
	s.mu.Unlock()
	if was {
		return nil
	}
	err := errors.Join(s.narrow(left), s.special.close())
	for _, d := range s.devices {
		fsys.CloseQuietly(d.fd)
	}
	for _, fs := range s.fileSystems {
		fs.dir.release()
	}
	s.dirs.Close()
	s.closeStage()
	s.closePartials()
	s.base.release()
	return err
}
