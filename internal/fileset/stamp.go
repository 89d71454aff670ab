package fileset

import (
	"context"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// Stamp shows whether a file has changed: compare stamps with ==. If the stamps of the
// walk, the opening and the last read differ, the file has changed.
type Stamp struct {
	Size, MtimeNs, CtimeNs int64
	Ino, Dev               uint64
}

// Inode is the file that the stamp is of.
func (s Stamp) Inode() manifest.Inode { return manifest.Inode{Dev: s.Dev, Ino: s.Ino} }

// StampOf is the stamp in what stat(2) says of a file.
func StampOf(st *unix.Stat_t) Stamp {
	return Stamp{Size: st.Size, MtimeNs: fsys.Nanoseconds(st.Mtim), CtimeNs: fsys.Nanoseconds(st.Ctim), Ino: st.Ino, Dev: st.Dev}
}

// freshAge is the age from which on a file's stamp tells of every write that begins. The
// clock of ctime ticks every 1 to 10 ms (CONFIG_HZ; file systems with multigrain timestamps, from
// Linux 6.13 on, are finer), and write(2) sets ctime before it moves its bytes: so a write of the
// tick in which the file was changed last may go on, or begin, and leave no trace. It takes a
// single write(2) of longer than this to do that to an older file.
const freshAge = 20 * time.Millisecond

// FreshFor is how long a file is still fresh, by the clock of this host. If its times are whole
// seconds, a later write has the same ones until the second is over, and on FAT, which keeps even
// seconds, until two are. A ctime in the future is by a server's clock, which has reached it, or
// the clock was set back: after the whole time a write has another ctime. A server's clock that is
// slow makes a file look older than it is; nothing shows that.
func (s Stamp) FreshFor(now time.Time) time.Duration {
	fresh := freshAge
	if second := int64(time.Second); s.MtimeNs%second == 0 && s.CtimeNs%second == 0 {
		fresh += time.Second
		if s.CtimeNs/second%2 == 0 {
			fresh += time.Second
		}
	}
	age := time.Duration(now.UnixNano() - s.CtimeNs)
	return max(0, fresh-max(0, age))
}

// AwaitAge waits until a file with the stamp is not fresh any more. The error is
// context.Canceled where stop is closed first.
func (s Stamp) AwaitAge(stop <-chan struct{}) error {
	fresh := s.FreshFor(time.Now())
	if fresh == 0 {
		return nil
	}
	select {
	case <-time.After(fresh):
		return nil
	case <-stop:
		return context.Canceled
	}
}

// StampNow is the stamp of name in a directory, of the link itself if it is one, or with the
// name "" of the open file fd. It has the kernel ask the server of a network file system, or
// the process behind FUSE (AT_STATX_FORCE_SYNC, statx(2)): stat(2) may answer from what the
// kernel remembers. On other file systems it is as quick as stat(2).
func StampNow(fd int, name string) (Stamp, error) {
	flags := unix.AT_SYMLINK_NOFOLLOW | unix.AT_EMPTY_PATH
	var x unix.Statx_t
	err := fsys.Uninterrupted(func() error {
		return unix.Statx(fd, name, flags|unix.AT_STATX_FORCE_SYNC, unix.STATX_BASIC_STATS, &x)
	})
	switch err {
	case nil:
		return Stamp{
			Size:    int64(x.Size),
			MtimeNs: fsys.StatxNs(x.Mtime),
			CtimeNs: fsys.StatxNs(x.Ctime),
			Ino:     x.Ino, Dev: unix.Mkdev(x.Dev_major, x.Dev_minor),
		}, nil
	case unix.ENOSYS, unix.EINVAL, unix.EPERM: // none here, or a seccomp filter older than the call
		var st unix.Stat_t
		err = fsys.Fstatat(fd, name, &st, flags)
		return StampOf(&st), err
	}
	return Stamp{}, err
}

// InodeOf is the file that st is of.
func InodeOf(st *unix.Stat_t) manifest.Inode { return manifest.Inode{Dev: st.Dev, Ino: st.Ino} }

// StampHeld returns the stamp of what was opened, or closes it.
func StampHeld(opened int, failed error) (fd int, now Stamp, err error) {
	if failed != nil {
		return -1, Stamp{}, failed
	}
	if now, err = StampNow(opened, ""); err != nil {
		fsys.CloseQuietly(opened)
	}
	return opened, now, err
}
