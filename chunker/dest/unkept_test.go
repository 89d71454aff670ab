package dest

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// refusal is what a file system does with a request to set attributes: it has an error, or
// drops the request silently, or does as it is asked.
type refusal struct {
	setattr func(isLink bool, in *fuse.SetAttrIn) (errno syscall.Errno, drops bool)
	xattr   syscall.Errno
}

type refusingNode struct {
	fs.LoopbackNode
	by *refusal
}

// WrapChild implements fs.NodeWrapChilder.
func (n *refusingNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &refusingNode{fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, n.by}
}

func (n *refusingNode) Setattr(ctx context.Context, f fs.FileHandle, in *fuse.SetAttrIn, out *fuse.AttrOut) syscall.Errno {
	if n.by.setattr == nil {
		return n.LoopbackNode.Setattr(ctx, f, in, out)
	}
	switch errno, drops := n.by.setattr(n.StableAttr().Mode == unix.S_IFLNK, in); {
	case errno != 0:
		return errno
	case drops:
		return n.LoopbackNode.Getattr(ctx, f, out)
	}
	return n.LoopbackNode.Setattr(ctx, f, in, out)
}

func (n *refusingNode) Setxattr(ctx context.Context, attr string, data []byte, flags uint32) syscall.Errno {
	if n.by.xattr != 0 {
		return n.by.xattr
	}
	return n.LoopbackNode.Setxattr(ctx, attr, data, flags)
}

const anyTime = fuse.FATTR_ATIME | fuse.FATTR_MTIME

// refusals are file systems that do not keep all attributes.
var refusals = map[string]struct {
	refusal
	mtimeNs int64 // of the source
	want    []fileset.Unkept
	// The state of the file in the end, and of the link.
	mode, uid    uint32
	time, ofLink int64
}{
	// libfuse2 ignores a request for one time without the other (fuse_lib_setattr).
	"libfuse2 keeps times": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (syscall.Errno, bool) {
			return 0, in.Valid&anyTime != 0 && in.Valid&anyTime != anyTime
		}},
		mode: 0o640, uid: 12, time: 1e9, ofLink: 1e9,
	},
	"times are dropped": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (syscall.Errno, bool) { return 0, in.Valid&anyTime != 0 }},
		want:    []fileset.Unkept{{Attribute: fileset.AttributeTime, Dir: ".", Entries: 3, First: "d/l", Reason: ErrTimeNotKept.Error()}},
		mode:    0o640, uid: 12,
	},
	"times are refused": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (errno syscall.Errno, _ bool) {
			if in.Valid&anyTime != 0 {
				errno = syscall.EPERM
			}
			return errno, false
		}},
		want: []fileset.Unkept{{Attribute: fileset.AttributeTime, Dir: ".", Entries: 3, First: "d/l", Reason: unix.EPERM.Error()}},
		mode: 0o640, uid: 12,
	},
	"late times are refused": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (errno syscall.Errno, _ bool) {
			if in.Valid&fuse.FATTR_MTIME != 0 && in.Mtime > math.MaxInt32 {
				errno = syscall.EINVAL
			}
			return errno, false
		}},
		mtimeNs: 5e18,
		want:    []fileset.Unkept{{Attribute: fileset.AttributeTime, Dir: ".", Entries: 3, First: "d/l", Reason: ErrTimeNotKept.Error()}},
		mode:    0o640, uid: 12, time: math.MaxInt32 - 1, ofLink: math.MaxInt32 - 1,
	},
	// sshfs looks for what the link leads to.
	"links have nothing": {
		refusal: refusal{setattr: func(isLink bool, in *fuse.SetAttrIn) (errno syscall.Errno, _ bool) {
			if isLink {
				errno = syscall.ENOENT
			}
			return errno, false
		}},
		want: []fileset.Unkept{{Attribute: fileset.AttributeOwner, Dir: ".", Entries: 1, First: "d/l", Reason: unix.ENOENT.Error()}, {Attribute: fileset.AttributeTime, Dir: ".", Entries: 1, First: "d/l", Reason: unix.ENOENT.Error()}},
		mode: 0o640, uid: 12, time: 1e9,
	},
	"owners are refused": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (errno syscall.Errno, _ bool) {
			if in.Valid&(fuse.FATTR_UID|fuse.FATTR_GID) != 0 {
				errno = syscall.EIO
			}
			return errno, false
		}},
		want: []fileset.Unkept{{Attribute: fileset.AttributeOwner, Dir: ".", Entries: 3, First: "d/l", Reason: unix.EIO.Error()}},
		mode: 0o600, time: 1e9, ofLink: 1e9,
	},
	"modes are refused": {
		refusal: refusal{setattr: func(_ bool, in *fuse.SetAttrIn) (errno syscall.Errno, _ bool) {
			if in.Valid&fuse.FATTR_MODE != 0 {
				errno = syscall.EPERM
			}
			return errno, false
		}},
		want: []fileset.Unkept{{Attribute: fileset.AttributeMode, Dir: ".", Entries: 2, First: "d/f", Reason: unix.EPERM.Error()}},
		mode: 0o600, uid: 12, time: 1e9, ofLink: 1e9,
	},
	"extended attributes are refused": {
		refusal: refusal{xattr: syscall.EOPNOTSUPP},
		want:    []fileset.Unkept{{Attribute: "user.a", Dir: ".", Entries: 2, First: "d", Reason: unix.EOPNOTSUPP.Error()}},
		mode:    0o640, uid: 12, time: 1e9, ofLink: 1e9,
	},
	"extended attributes have no room": {
		refusal: refusal{xattr: syscall.ENOSPC},
		want:    []fileset.Unkept{{Attribute: "user.a", Dir: ".", Entries: 2, First: "d", Reason: "the file system has no room for an attribute of 1 bytes"}},
		mode:    0o640, uid: 12, time: 1e9, ofLink: 1e9,
	},
}

// TestUnkeptAttributes: no attribute costs an entry. What cannot be kept is counted, for each
// attribute once, and nobody gets more rights than at the source. If attributes are
// required, the same is an error.
func TestUnkeptAttributes(t *testing.T) {
	needsRoot(t)
	for what, c := range refusals {
		for _, required := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, required %v", what, required), func(t *testing.T) {
				dir := fusetest.MountLoopback(t, t.TempDir(), func(top *fs.LoopbackRoot) fs.InodeEmbedder {
					return &refusingNode{fs.LoopbackNode{RootData: top}, &c.refusal}
				})
				ns := int64(1e18)
				if c.mtimeNs != 0 {
					ns = c.mtimeNs
				}
				s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true, Xattrs: true}, RequireAttributes: required})
				err := putWithAttributes(s, ns)
				if failed := len(c.want) > 0 && required; (err != nil) != failed {
					t.Fatalf("%v", err)
				}
				got := s.TakeUnkept()
				for i := range got {
					if i < len(c.want) && len(got[i].Reason) > len(c.want[i].Reason) { // the time that there is now
						got[i].Reason = got[i].Reason[:len(c.want[i].Reason)]
					}
				}
				if required {
					if len(got) > 0 {
						t.Errorf("not kept: %+v", got)
					}
					return
				}
				if fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("not kept: %+v, want %+v", got, c.want)
				}
				var st unix.Stat_t
				if err := unix.Lstat(dir+"/d/f", &st); err != nil || st.Mode&0o7777 != c.mode || st.Uid != c.uid || !isTime(st.Mtim, c.time) {
					t.Errorf("the file: mode %#o, owner %d, time %v, %v", st.Mode, st.Uid, time.Unix(st.Mtim.Unix()), err)
				}
				if err := unix.Lstat(dir+"/d/l", &st); err != nil || !isTime(st.Mtim, c.ofLink) {
					t.Errorf("the link: time %v, %v", time.Unix(st.Mtim.Unix()), err)
				}
				if content, err := os.ReadFile(filepath.Join(dir, "d/f")); err != nil || string(content) != "x" {
					t.Errorf("%q, %v", content, err)
				}
			})
		}
	}
}

// isTime reports whether a time is the wanted one in seconds or, if that is 0, of today.
func isTime(is unix.Timespec, want int64) bool {
	if want == 0 {
		return time.Since(time.Unix(is.Unix())) < time.Hour
	}
	return is.Sec == want
}

// putWithAttributes makes a directory, a file and a link in it, and returns all errors.
func putWithAttributes(s *Sink, ns int64) error {
	a := &Attributes{UID: 12, GID: 34, Xattrs: encodeXattrs(map[string]string{"user.a": "v"})}
	errs := []error{s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o750, MtimeNs: ns}, a)}
	errs = append(errs, s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "d/l", Target: "f", MtimeNs: ns}, &Attributes{UID: 12, GID: 34}))
	temp, err := s.Create(&manifest.Entry{Type: manifest.File, Path: "d/f", Size: 1, Mode: 0o640, MtimeNs: ns}, a)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if _, err = temp.WriteAt([]byte("x"), 0); err == nil {
		err = temp.Finish()
	}
	if err == nil {
		err = s.Publish([]*Temp{temp})[0]
	} else {
		err = errors.Join(err, temp.Discard())
	}
	return errors.Join(append(errs, err, s.FinishDirs())...)
}

// TestInPlaceOfAnotherUser: this user may write to the file, and not change its mode or time. It
// is written to, unless it has rights that the entry does not give: then a new file replaces it.
func TestInPlaceOfAnotherUser(t *testing.T) {
	needsRoot(t)
	for _, required := range []bool{false, true} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "wide=old", "narrow=old")
		if err := errors.Join(unix.Chmod(dir+"/wide", 0o666), unix.Chmod(dir+"/narrow", 0o664)); err != nil {
			t.Fatal(err)
		}
		treetest.AsNobody(t, dir, func() {
			s := sinkInto(t, dir, Options{Keep: Keep{Modes: true, Times: true}, RequireAttributes: required})
			defer s.Close()
			e := fileEntry("wide", "new")
			if temp, err := s.OpenInPlace(e, nil); temp != nil || (err != nil) != required {
				t.Errorf("required %v: in place although others may write to it: %v", required, err)
			}
			if err := put(s, e, "new"); err != nil {
				t.Error(err)
			}
			e = fileEntry("narrow", "new")
			e.Mode = 0o666
			temp, err := s.OpenInPlace(e, nil)
			if temp == nil || err != nil {
				t.Errorf("not in place: %v", err)
				return
			}
			if _, err = temp.WriteAt([]byte("new"), 0); err == nil {
				err = temp.Finish()
			}
			if required {
				if !errors.Is(err, unix.EPERM) {
					t.Errorf("the mode is required: %v", err)
				}
				_ = temp.Discard()
				return
			}
			if err = errors.Join(err, s.Publish([]*Temp{temp})[0]); err != nil {
				t.Error(err)
			}
			why := unix.EPERM.Error()
			wantUnkept(t, s, true, fileset.Unkept{Attribute: fileset.AttributeMode, Dir: ".", Entries: 1, First: "narrow", Reason: why}, fileset.Unkept{Attribute: fileset.AttributeTime, Dir: ".", Entries: 1, First: "narrow", Reason: why})
		})
		if !required {
			treetest.WantTree(t, dir, "wide=new", "narrow=new")
		}
		wantMode(t, dir+"/narrow", 0o664)
		wantMode(t, dir+"/wide", 0o644)
	}
}

// TestDirectoryThatCannotBeWithheld: a file system without chmod has directories, too.
func TestDirectoryThatCannotBeWithheld(t *testing.T) {
	refuses := refusals["modes are refused"]
	dir := fusetest.MountLoopback(t, t.TempDir(), func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &refusingNode{fs.LoopbackNode{RootData: top}, &refuses.refusal}
	})
	s := sinkInto(t, dir, Options{})
	if err := errors.Join(s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}, &Attributes{UID: 12, GID: 34}), s.FinishDirs()); err != nil {
		t.Error(err)
	}
	wantUnkept(t, s, false)
}

// spoolingNode is of a file system that writes a file when it is flushed, which changes its time.
type spoolingNode struct {
	fs.LoopbackNode
	until *atomic.Int64 // how many files it still does that to
	clean atomic.Bool
}

// WrapChild implements fs.NodeWrapChilder.
func (n *spoolingNode) WrapChild(_ context.Context, ops fs.InodeEmbedder) fs.InodeEmbedder {
	return &spoolingNode{LoopbackNode: fs.LoopbackNode{RootData: ops.(*fs.LoopbackNode).RootData}, until: n.until}
}

func (n *spoolingNode) Flush(ctx context.Context, f fs.FileHandle) syscall.Errno {
	if !n.clean.Swap(true) && n.until.Add(-1) >= 0 {
		now := time.Now()
		if err := os.Chtimes(filepath.Join(n.RootData.Path, n.Path(nil)), now, now); err != nil {
			return fs.ToErrno(err)
		}
	}
	return f.(fs.FileFlusher).Flush(ctx)
}

// TestTimesThatAFlushChanges: a file has its time also if the file system changes it when the
// file is flushed.
func TestTimesThatAFlushChanges(t *testing.T) {
	below, until := t.TempDir(), new(atomic.Int64)
	dir := fusetest.MountLoopback(t, below, func(top *fs.LoopbackRoot) fs.InodeEmbedder {
		return &spoolingNode{LoopbackNode: fs.LoopbackNode{RootData: top}, until: until}
	})
	s := sinkInto(t, dir, Options{Keep: Keep{Times: true}})
	until.Store(2)
	for _, name := range []string{"a", "b", "c"} {
		e := fileEntry(name, "x")
		e.MtimeNs = 1e18
		if err := put(s, e, "x"); err != nil {
			t.Error(err)
		}
		if st, err := os.Stat(filepath.Join(below, name)); err != nil || st.ModTime().UnixNano() != 1e18 {
			t.Errorf("%s has the time %v, %v", name, st.ModTime(), err)
		}
	}
	if got := s.deviceOf(s.base).flushKeepsTimes.Load(); !got {
		t.Error("a file that kept its time is looked at, and those after it, too")
	}
	wantUnkept(t, s, false)
}
