package soak

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// entry is what a path leads to.
type entry struct {
	kind   byte // f, d, l
	mode   fs.FileMode
	time   time.Time
	size   int64
	sum    [sha256.Size]byte // of a file's content
	target string
	inode  uint64
	// begins has the digests of its beginnings, by the sizes that the file had earlier.
	begins map[int64][sha256.Size]byte
}

// is reports whether two entries have the same content.
func (e entry) is(other entry) bool {
	return e.kind == other.kind && e.size == other.size && e.sum == other.sum && e.target == other.target
}

func (e entry) String() string {
	return fmt.Sprintf("%c %v %v, %d bytes, %x %q", e.kind, e.mode, e.time.Format(time.RFC3339Nano), e.size, e.sum[:4], e.target)
}

// state is the contents of a directory, by path.
type state map[string]entry

// isTemp reports whether a name belongs to an incomplete file.
func isTemp(path string) bool { return strings.HasPrefix(filepath.Base(path), ".gdrcp-") }

// look reads everything below dir, which may be missing. temps are the names of
// incomplete files.
func look(t *testing.T, dir string) (all state, temps []string) {
	t.Helper()
	all = make(state)
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil || rel == "." {
			return err
		}
		if isTemp(path) {
			temps = append(temps, rel)
			return nil
		}
		e, err := entryAt(path)
		all[rel] = e
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return all, temps
}

func entryAt(path string) (e entry, err error) {
	st, err := os.Lstat(path)
	if err != nil {
		return e, err
	}
	e = entry{kind: 'f', mode: st.Mode(), time: st.ModTime(), inode: st.Sys().(*syscall.Stat_t).Ino}
	switch {
	case st.IsDir():
		e.kind = 'd'
	case st.Mode()&fs.ModeSymlink != 0:
		e.kind = 'l'
		e.target, err = os.Readlink(path)
	case st.Mode().IsRegular():
		e.size, e.sum, err = digest(path, math.MaxInt64)
	default:
		err = fmt.Errorf("%q is of an unknown kind", path)
	}
	return e, err
}

// digest reads a file, up to most bytes.
func digest(path string, most int64) (bytes int64, sum [sha256.Size]byte, err error) {
	f, err := os.Open(path)
	if err != nil {
		return 0, sum, err
	}
	defer f.Close()
	h := sha256.New()
	bytes, err = io.CopyBuffer(h, io.LimitReader(f, most), make([]byte, 256<<10))
	return bytes, [sha256.Size]byte(h.Sum(nil)), err
}

// equal fails the test if there lacks an entry of want, or has one that is in neither
// want nor extra. modes are the permission bits that are kept.
func (there state) equal(t *testing.T, want, extra state, modes fs.FileMode, times bool) {
	t.Helper()
	for path, w := range want {
		e, ok := there[path]
		switch {
		case !ok:
			t.Errorf("%q did not arrive", path)
		case !e.is(w):
			t.Errorf("%q is %v, not %v", path, e, w)
		case w.kind == 'l':
		case e.mode&modes != w.mode&modes || times && !e.time.Equal(w.time):
			t.Errorf("%q is %v, not %v", path, e, w)
		}
	}
	for path := range there {
		_, wanted := want[path]
		if _, was := extra[path]; !wanted && !was {
			t.Errorf("%q should not be there", path)
		}
	}
}

// linkedAs fails the test if names of one file at the source are not names of one file
// here.
func (there state) linkedAs(t *testing.T, source state) {
	t.Helper()
	of := map[uint64]string{}
	for path, e := range source {
		if e.kind != 'f' {
			continue
		}
		if first, ok := of[e.inode]; !ok {
			of[e.inode] = path
		} else if there[first].inode != there[path].inode {
			t.Errorf("%q and %q are one file at the source, and not here", first, path)
		}
	}
}
