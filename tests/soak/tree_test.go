package soak

import (
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const mib = 1 << 20

// tree makes a random tree and changes it.
type tree struct {
	t     *testing.T
	rng   *rand.Rand
	dir   string
	dirs  []string // below dir, "." first
	files []string
	bytes int64 // of all files when they were made
	names int   // number of names made so far
}

// newTree makes a tree in dir, which exists: with names of any bytes, empty files and
// directories, files of one and of several pieces, holes, links of both kinds, and a
// deep path.
func newTree(t *testing.T, rng *rand.Rand, dir string) *tree {
	x := &tree{t: t, rng: rng, dir: dir, dirs: []string{"."}}
	for range 1 + rng.IntN(1+rng.IntN(100)) {
		x.grow()
	}
	if rng.IntN(3) == 0 {
		x.file(x.fresh(), 16*mib+rng.Int64N(24*mib)) // large enough for a journal
	}
	x.dress()
	return x
}

// odd are parts of names that often cause trouble.
var odd = []string{"a", "b", "\n", " ", "\t", "-", "--", "*", "[", "?", "\\", "'", "\"", "$(x)", "é", "漢", "\xff", "\x01", ".", "..", ":", "#", "%s", "~", "tmp"}

// name returns a new name, made of odd parts and a number.
func (x *tree) name() string {
	var b strings.Builder
	for range x.rng.IntN(4) {
		b.WriteString(odd[x.rng.IntN(len(odd))])
	}
	if x.rng.IntN(40) == 0 {
		b.WriteString(strings.Repeat("x", 230))
	}
	x.names++
	return fmt.Sprintf("%s%d", b.String(), x.names)
}

// fresh returns the path of a new entry.
func (x *tree) fresh() string { return filepath.Join(x.dirs[x.rng.IntN(len(x.dirs))], x.name()) }

func (x *tree) at(path string) string { return filepath.Join(x.dir, path) }

// grow adds one entry.
func (x *tree) grow() {
	path := x.fresh()
	switch kind := x.rng.IntN(20); {
	case kind == 0:
		for range 1 + x.rng.IntN(9) { // a deep path
			path = filepath.Join(path, "deep")
			must(x.t, os.MkdirAll(x.at(path), 0o755))
		}
		x.dirs = append(x.dirs, path)
	case kind < 4:
		must(x.t, os.Mkdir(x.at(path), 0o755))
		x.dirs = append(x.dirs, path)
	case kind == 4:
		must(x.t, os.Symlink([]string{"nowhere", "/etc/hostname", "..", "a\nb"}[x.rng.IntN(4)], x.at(path)))
	case kind == 5 && len(x.files) > 0:
		must(x.t, os.Link(x.at(x.files[x.rng.IntN(len(x.files))]), x.at(path)))
		x.files = append(x.files, path)
	case kind == 6:
		x.sparse(path)
	case kind == 7:
		x.file(path, mib+x.rng.Int64N(3)-1) // about a piece
	case kind == 8:
		x.file(path, x.rng.Int64N(5*mib))
	case kind == 9:
		x.file(path, 0)
	default:
		x.file(path, int64(x.rng.ExpFloat64()*20_000))
	}
}

// file makes a file of noise.
func (x *tree) file(path string, bytes int64) {
	f, err := os.OpenFile(x.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	must(x.t, err)
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(x.noise(), bytes), make([]byte, 256<<10))
	must(x.t, err)
	x.files, x.bytes = append(x.files, path), x.bytes+bytes
}

// noise returns a stream of incompressible bytes, or of compressible ones.
func (x *tree) noise() io.Reader {
	var key [32]byte
	for i := range key {
		key[i] = byte(x.rng.Uint32())
	}
	return rand.NewChaCha8(key)
}

// sparse makes a file of holes with some data between them.
func (x *tree) sparse(path string) {
	f, err := os.OpenFile(x.at(path), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	must(x.t, err)
	defer f.Close()
	size := x.rng.Int64N(40 * mib)
	must(x.t, f.Truncate(size))
	for range x.rng.IntN(4) {
		data := make([]byte, x.rng.IntN(300_000))
		_, _ = io.ReadFull(x.noise(), data) // noise never fails
		_, err := f.WriteAt(data[:min(int64(len(data)), size)], x.rng.Int64N(max(1, size-int64(len(data)))))
		must(x.t, err)
		x.bytes += int64(len(data))
	}
	x.files = append(x.files, path)
}

// dress sets modes and times, deepest directories first.
func (x *tree) dress() {
	for _, path := range x.files {
		mode := fs.FileMode(0o600 | x.rng.IntN(0o200))
		if x.rng.IntN(20) == 0 {
			mode |= fs.ModeSetuid
		}
		must(x.t, os.Chmod(x.at(path), mode))
		when := time.Unix(1e9+x.rng.Int64N(5e8), x.rng.Int64N(1e9))
		must(x.t, os.Chtimes(x.at(path), time.Time{}, when))
	}
	for i := len(x.dirs) - 1; i > 0; i-- {
		must(x.t, os.Chmod(x.at(x.dirs[i]), fs.FileMode(0o700|x.rng.IntN(0o100))))
		when := time.Unix(1e9+x.rng.Int64N(5e8), 0)
		must(x.t, os.Chtimes(x.at(x.dirs[i]), time.Time{}, when))
	}
}

// change changes something in the tree in one step, so that every file has either its
// former or its new content.
func (x *tree) change() {
	if len(x.files) == 0 {
		return
	}
	i := x.rng.IntN(len(x.files))
	if x.rng.IntN(2) == 0 {
		i = len(x.files) - 1 // if there is a large file, choose it
	}
	at := x.at(x.files[i])
	switch x.rng.IntN(6) {
	case 0, 1:
		x.write(at, os.O_APPEND, "appended")
	case 2:
		st, err := os.Lstat(at)
		must(x.t, err)
		must(x.t, os.Truncate(at, st.Size()/2))
	case 3:
		x.write(at, 0, "overwritten") // its beginning
	case 4:
		x.write(x.at("replacement"), os.O_CREATE|os.O_EXCL, strings.Repeat("replaced", 1+x.rng.IntN(10000)))
		must(x.t, os.Rename(x.at("replacement"), at))
	default:
		must(x.t, os.Remove(at))
		x.files = append(x.files[:i], x.files[i+1:]...)
	}
}

func (x *tree) write(at string, flags int, text string) {
	f, err := os.OpenFile(at, os.O_WRONLY|flags, 0o644)
	must(x.t, err)
	_, err = f.WriteString(text)
	must(x.t, err)
	must(x.t, f.Close())
}
