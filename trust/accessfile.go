package trust

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Check reports what would keep the permit from being read back.
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

// AppendAccess adds a key to an access file, or makes the file, readable for its
// owner only: a new one belongs to this user, one that was there to whom it did,
// which root may add to. Who reads the file meanwhile sees the old one or the new one, both
// whole; of several who add at once none is lost. A file that is broken, or that
// has the key, stays as it is and is an error.
func AppendAccess(path string, p Permit) error {
	if err := p.Check(); err != nil {
		return err
	}
	path, err := resolve(path)
	if err != nil {
		return err
	}
	f, err := lockAccess(path)
	if err != nil {
		return err
	}
	defer f.Close() // and with it the lock
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
		return fmt.Errorf("%s would have more than the %d bytes that an access file may have", strconv.Quote(path), maxAccessBytes)
	}
	return replace(f, path, data)
}

// resolve follows links, so that it is not a link that is replaced.
func resolve(path string) (string, error) {
	at, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return path, nil
	}
	return at, err
}

// lockAccess opens the file, or makes an empty one, and waits until nobody else
// adds to it. The lock is on the file that has the name: who has waited for one
// that was replaced meanwhile begins anew.
func lockAccess(path string) (*os.File, error) {
	for {
		f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|syscall.O_NONBLOCK, 0o600)
		if err != nil {
			return nil, err
		}
		for {
			if err = unix.Flock(int(f.Fd()), unix.LOCK_EX); !errors.Is(err, unix.EINTR) {
				break
			}
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", strconv.Quote(path), err), f.Close())
		}
		mine, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if there, err := os.Stat(path); err == nil && os.SameFile(mine, there) {
			return f, nil
		}
		f.Close()
	}
}

// replace writes a file beside the old one and gives it that one's owner, mode
// and name.
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
	return syncDir(dir)
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
