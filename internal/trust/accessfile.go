package trust

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/dirsync"
)

// Check returns an error if the permit could not be parsed after it is written.
func (p *Permit) Check() error {
	got, ok, err := parsePermit(p.line())
	if err == nil && (!ok || got != *p) {
		err = errors.New("the root of a key is not an absolute and clean path")
	}
	return err
}

// WriteLine writes the permit as a line of an access file, with the secret.
func (p *Permit) WriteLine(w io.Writer) error {
	if err := p.Check(); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, p.line())
	return err
}

// lockPatience is how long AppendAccess waits for another process that holds
// the lock, and lockInterval is the time between two attempts. Any process that
// can open the file can lock it forever, so the wait needs a bound.
const (
	lockPatience = 10 * time.Second
	lockInterval = 10 * time.Millisecond
)

// ErrUnsynced: an access file has the key, but may lose it if the host crashes.
var ErrUnsynced = errors.New("the key was added, but may not be on the disk yet")

// AppendAccess adds a key to an access file, or creates the file, readable only for its
// owner. A new file belongs to this user; an existing file keeps its owner, and root may
// add to it. A reader sees either the whole old file or the whole new one. If several
// processes add keys concurrently, no key is lost: each process waits for the others until
// ctx ends, at most 10 s. A file that is invalid, that already has the key, or that is a
// dangling link is not changed, and AppendAccess returns an error. After ErrUnsynced the
// file has the key.
func AppendAccess(ctx context.Context, path string, p Permit) error {
	if err := p.Check(); err != nil {
		return err
	}
	path, err := resolve(path)
	if err != nil {
		return err
	}
	f, err := lockAccess(ctx, path)
	if err != nil {
		return err
	}
	defer f.Close() // this also releases the lock
	data, err := readOpen(f, path, maxAccessBytes, anybody)
	if err != nil {
		return err
	}
	if len(data) > 0 && data[len(data)-1] != '\n' {
		data = append(data, '\n')
	}
	data = append(data, p.line()+"\n"...)
	if _, err := parseAccess(path, data); err != nil {
		return err
	}
	if len(data) > maxAccessBytes {
		return fmt.Errorf("%s would be larger than an access file may be: %d bytes", strconv.Quote(path), maxAccessBytes)
	}
	return replace(f, path, data)
}

// resolve follows links, so that AppendAccess does not replace a link. It
// refuses a dangling link: root would create a file wherever the link points.
func resolve(path string) (string, error) {
	at, err := filepath.EvalSymlinks(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return at, err
	}
	if _, err := os.Lstat(path); err == nil {
		return "", fmt.Errorf("%s is a link to a file that does not exist", strconv.Quote(path))
	}
	dir, err := filepath.EvalSymlinks(filepath.Dir(path))
	return filepath.Join(dir, filepath.Base(path)), err
}

// lockAccess opens the file, or creates an empty one, and waits until no other process
// adds to it. The lock is on the file that has the name: if the file was replaced during
// the wait, lockAccess waits for the new file. path is resolved.
func lockAccess(ctx context.Context, path string) (*os.File, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, lockPatience,
		fmt.Errorf("%s has been locked by another process for %s", strconv.Quote(path), lockPatience))
	defer cancel()
	for {
		f, err := lockNow(path)
		if f != nil || err != nil {
			return f, err
		}
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case <-time.After(lockInterval):
		}
	}
}

// lockNow is lockAccess without waiting. It returns nil if the file is locked
// or was just replaced.
func lockNow(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if errors.Is(err, fs.ErrExist) {
			return nil, nil // another process has created it
		}
	}
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK), errors.Is(err, unix.EINTR):
		return nil, f.Close()
	case err != nil:
		return nil, errors.Join(fmt.Errorf("lock %s: %w", strconv.Quote(path), err), f.Close())
	}
	mine, err := f.Stat()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	if there, err := os.Lstat(path); err != nil || !os.SameFile(mine, there) {
		return nil, f.Close()
	}
	return f, nil
}

// replace writes a new file in the same directory, with the old file's owner
// and mode, and renames it to the old file's name.
func replace(old *os.File, path string, data []byte) error {
	st, err := old.Stat()
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, "."+filepath.Base(path)+"-*") // mode 0600
	if err != nil {
		return err
	}
	owner := st.Sys().(*syscall.Stat_t)
	if owner.Uid != uint32(os.Geteuid()) || owner.Gid != uint32(os.Getegid()) {
		err = f.Chown(int(owner.Uid), int(owner.Gid))
	}
	if err == nil {
		err = f.Chmod(st.Mode().Perm())
	}
	if err == nil {
		_, err = f.Write(data)
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	if err := dirsync.Path(dir); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsynced, err)
	}
	return nil
}
