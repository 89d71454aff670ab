package dest

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// ErrInUse: another copy writes the file itself.
var ErrInUse = errors.New("another copy is writing it in place")

// OpenInPlace opens the regular file in an entry's place, so that the entry is written into that
// very file. It is nil where there is none, and for one that has other names, which may be those
// of other entries, or rights that cannot be taken away: Create makes one. Until it is published
// the file is neither what it was nor what it is to be, and Discard leaves it so. It is locked
// against other copies in place, but anybody may read and write it meanwhile. Bits of its mode
// that the entry does not have are taken away at once, with Keep.Modes, or set-ID bits without;
// Discard gives them back to a file that nobody has written to. Publish checks that it still has
// its name, and gives it its time. ErrInUse, ErrTaken: see there.
func (s *Sink) OpenInPlace(e *manifest.Entry, a *Attributes) (*Temp, error) {
	if s.keepsAll {
		return nil, nil
	}
	if h, _, err := s.parentOf("open in place", e.Path); err == nil {
		refuses := s.writesInOrder(h)
		h.release()
		if refuses {
			return nil, nil
		}
	}
	return s.openInPlace(e, a)
}

func (s *Sink) openInPlace(e *manifest.Entry, a *Attributes) (*Temp, error) {
	t, err := s.newTemp(e, a)
	if err != nil {
		return nil, err
	}
	is, err := t.openInPlace(e.Mode)
	if !is || err != nil {
		if t.fd >= 0 {
			fsys.CloseQuietly(t.fd)
		}
		t.dir.release()
		return nil, fileset.OpErr("open in place", t.place, err)
	}
	return t, nil
}

func (t *Temp) openInPlace(sourceMode uint32) (is bool, err error) {
	err = t.sink.find(t.dir, t.leaf, &t.made)
	if err == unix.ENOENT || err == nil && (t.made.Mode&unix.S_IFMT != unix.S_IFREG || t.made.Nlink > 1) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	t.sink.sweep(t.dir) // what copies have left takes room, of which there may be little
	if t.fd, err = fsys.Openat(t.dir.FD, t.leaf, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0); err != nil {
		t.fd = -1
		return false, err
	}
	if err := t.lockInPlace(); err != nil {
		return false, err
	}
	if err := fsys.Fstat(t.fd, &t.made); err != nil {
		return false, err
	}
	if t.made.Mode&unix.S_IFMT != unix.S_IFREG || t.made.Nlink != 1 {
		return false, fileset.ErrChanged
	}
	t.ino, t.origin.inPlace = t.made.Ino, true
	t.have = t.made.Mode & 0o7777
	t.want = t.have & 0o1777 // writing takes the set-ID bits
	if t.sink.opt.Keep.Modes {
		t.want, t.setID = t.sink.keptMode(sourceMode)
	}
	if narrow := t.have & t.want; narrow != t.have {
		switch err := fsys.Fchmod(t.fd, narrow); {
		case err == nil:
			t.have = narrow
			t.origin.narrowed, _ = fileset.StampNow(t.fd, "") // without it the bits stay away
		case t.sink.opt.RequireAttributes:
			return false, err
		case t.have&^t.want&0o077 != 0:
			return false, nil // more users could read or write it than the entry: a new file does not let them
		}
		// Else Finish says that it lacks its mode. Writing takes the set-ID bits.
	}
	t.written.Store(t.made.Size) // Finish sets the size where this is not the entry's
	return true, nil
}

// giveModeBack gives a file its mode back that was opened in place and is given up before
// anything of it was changed. Somebody else may have written to it meanwhile: then set-ID bits
// would be for his content.
func (t *Temp) giveModeBack() error {
	if t.origin.narrowed == (fileset.Stamp{}) || t.origin.dirty.Load() {
		return nil
	}
	was := fileset.StampOf(&t.made)
	was.CtimeNs = t.origin.narrowed.CtimeNs
	if now, err := fileset.StampNow(t.fd, ""); err != nil || now != was {
		return err
	}
	return fsys.Fchmod(t.fd, t.made.Mode&0o7777)
}

// lockInPlace locks the file. It waits for a copy that was cut off and is still ending, as
// Resume does: all files of a Sink together no longer than defaultLockWait.
func (t *Temp) lockInPlace() error {
	for {
		err := fsys.TryLock(t.fd)
		switch err {
		case unix.EWOULDBLOCK:
		case unix.EOPNOTSUPP, unix.ENOLCK, unix.ENOSYS: // no locks here
			return nil
		default:
			return err
		}
		if t.sink.inPlaceWait.Add(-int64(lockPause)) < 0 {
			return ErrInUse
		}
		if err := t.step(); err != nil {
			return err
		}
		time.Sleep(lockPause)
	}
}

// InPlace reports whether OpenInPlace made it.
func (t *Temp) InPlace() bool { return t.origin.inPlace }

// IsHalfWritten reports whether the file is neither what it was nor what it is to be.
func (t *Temp) IsHalfWritten() bool {
	return t.halfOver || t.origin.inPlace && t.origin.dirty.Load()
}

// finishInPlace checks that the entry's name leads to the file that was written, and gives the
// file its time. With that time it counts as what the entry says, so nothing gets it before its
// data is on the disk and was read back.
func (t *Temp) finishInPlace() error {
	now, err := t.stampAtName()
	if err == nil && now.Inode() != fileset.InodeOf(&t.made) {
		err = fileset.ErrChanged
	}
	if err != nil {
		return fileset.OpErr("write in place", t.place, err)
	}
	return t.applyTime()
}

// modeInPlace is the mode of a file that keeps its own: writing takes the set-ID bits, and so
// does another owner.
func (t *Temp) modeInPlace() uint32 {
	if !t.origin.dirty.Load() && t.made.Size == t.size && !t.attrs.owns() {
		return t.made.Mode & 0o7777
	}
	return t.want
}
