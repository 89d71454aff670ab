package program

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// must ends the test if preparing it fails.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// noise returns a stream of incompressible bytes, the same for the same seed.
func noise(seed uint64) io.Reader {
	var key [32]byte
	copy(key[:], fmt.Sprintf("noise %d", seed))
	return rand.NewChaCha8(key)
}

// makeFile makes a file with that many bytes of noise.
func makeFile(t testing.TB, path string, bytes int64, seed uint64) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	_, err = io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(noise(seed), bytes), make([]byte, 1<<20))
	must(t, err)
}

func write(t testing.TB, path, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte(text), 0o644))
}

// makeTree makes a tree of files of many sizes, some of them empty, directories, one of
// them empty, and links, one of them dangling.
func makeTree(t testing.TB, dir string, files int, seed uint64) {
	t.Helper()
	r := rand.New(rand.NewPCG(seed, 1))
	for i := range files {
		size := int64(0)
		if i > 0 {
			size = int64(r.ExpFloat64() * 30000)
		}
		name := filepath.Join(dir, fmt.Sprintf("d%d", i%7), fmt.Sprintf("s%d", i%3), fmt.Sprintf("f%d", i))
		makeFile(t, name, size, seed+uint64(i))
		must(t, os.Chmod(name, fs.FileMode(0o600|r.IntN(0o200))))
		must(t, os.Chtimes(name, time.Time{}, time.Unix(1e9+int64(i), 123456789)))
	}
	must(t, os.MkdirAll(filepath.Join(dir, "empty"), 0o755))
	must(t, os.Symlink("d0/s0/f0", filepath.Join(dir, "link")))
	must(t, os.Symlink("nowhere", filepath.Join(dir, "dangling")))
}

// kind returns the type of an entry as one letter.
func kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "f"
	case m.IsDir():
		return "d"
	case m&fs.ModeSymlink != 0:
		return "l"
	}
	return "special"
}

// sameTree fails the test unless copied equals original: names, types, contents and
// link targets and, with meta, modes and times too.
func sameTree(t testing.TB, original, copied string, meta bool) {
	t.Helper()
	a, b := namesBelow(t, original), namesBelow(t, copied)
	for name := range b {
		if _, ok := a[name]; !ok {
			t.Errorf("%q is not in the original", name)
		}
	}
	for name, x := range a {
		y, ok := b[name]
		if !ok {
			t.Errorf("%q was not copied", name)
			continue
		}
		if why := differ(x, y, filepath.Join(original, name), filepath.Join(copied, name)); why != "" {
			t.Errorf("%q: %s", name, why)
		}
		if meta && kind(x.Mode()) != "l" && (x.Mode() != y.Mode() || !x.ModTime().Equal(y.ModTime())) {
			t.Errorf("%q has %v %v, not %v %v", name, y.Mode(), y.ModTime(), x.Mode(), x.ModTime())
		}
	}
}

// namesBelow returns all names below dir; "." is dir itself, which may be a file. Names
// that disappear meanwhile are omitted.
func namesBelow(t testing.TB, dir string) map[string]fs.FileInfo {
	t.Helper()
	all := map[string]fs.FileInfo{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var st fs.FileInfo
		if err == nil {
			st, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		all[rel] = st
		return err
	})
	if err != nil {
		t.Errorf("walk: %v", err)
	}
	return all
}

// differ describes how two files, links or directories differ, or returns "".
func differ(x, y fs.FileInfo, pathX, pathY string) string {
	if kx, ky := kind(x.Mode()), kind(y.Mode()); kx != ky {
		return fmt.Sprintf("is %s, not %s", ky, kx)
	}
	switch kind(x.Mode()) {
	case "f":
		if x.Size() != y.Size() {
			return fmt.Sprintf("has %d bytes, not %d", y.Size(), x.Size())
		}
		return differAt(pathX, pathY)
	case "l":
		lx, _ := os.Readlink(pathX)
		if ly, err := os.Readlink(pathY); err != nil || lx != ly {
			return fmt.Sprintf("leads to %q, not %q", ly, lx)
		}
	}
	return ""
}

// differAt compares the content of two files of the same size.
func differAt(pathX, pathY string) string {
	x, err := os.Open(pathX)
	if err != nil {
		return err.Error()
	}
	defer x.Close()
	y, err := os.Open(pathY)
	if err != nil {
		return err.Error()
	}
	defer y.Close()
	bx, by := make([]byte, 256<<10), make([]byte, 256<<10)
	for offset := int64(0); ; {
		n, errX := io.ReadFull(x, bx)
		m, _ := io.ReadFull(y, by)
		if n != m || !bytes.Equal(bx[:n], by[:m]) {
			return fmt.Sprintf("differs in [%d, %d)", offset, offset+int64(len(bx)))
		}
		if errX != nil {
			return ""
		}
		offset += int64(n)
	}
}

// isTemp reports whether a name belongs to an incomplete file.
func isTemp(name string) bool { return strings.HasPrefix(filepath.Base(name), ".gdrcp-") }

// temps returns the entries below dir that have no final name.
func temps(dir string) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, _ error) error { // files appear and disappear
		if isTemp(path) {
			found = append(found, path)
		}
		return nil
	})
	return found
}

// noneWrong fails the test if a file has its final name and differs from the original.
func noneWrong(t testing.TB, original, copied string) {
	t.Helper()
	if _, err := os.Lstat(copied); err != nil {
		return
	}
	for name, y := range namesBelow(t, copied) {
		if isTemp(name) {
			continue
		}
		x, err := os.Lstat(filepath.Join(original, name))
		if err != nil {
			t.Errorf("%q is not in the original", name)
		} else if why := differ(x, y, filepath.Join(original, name), filepath.Join(copied, name)); why != "" {
			t.Errorf("%q bears its final name and %s", name, why)
		}
	}
}

// noTemps fails the test if an entry below dir has no final name. A server may still remove
// what it has after its client has ended.
func noTemps(t testing.TB, dir string) {
	t.Helper()
	left := temps(dir)
	for end := time.Now().Add(launch.Slow(5 * time.Second)); len(left) > 0 && time.Now().Before(end); left = temps(dir) {
		time.Sleep(10 * time.Millisecond)
	}
	if len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// allocated returns how many bytes a file occupies on its disk.
func allocated(t testing.TB, path string) int64 {
	t.Helper()
	var st syscall.Stat_t
	must(t, syscall.Stat(path, &st))
	return st.Blocks * 512
}

// awaitPartial waits until part of a copy has arrived below dir, under no final name.
func awaitPartial(t testing.TB, dir string, p *process) {
	t.Helper()
	for deadline := time.Now().Add(launch.Slow(20 * time.Second)); ; time.Sleep(2 * time.Millisecond) {
		for _, path := range temps(dir) {
			var st syscall.Stat_t
			if syscall.Stat(path, &st) == nil && st.Blocks >= 512 {
				return
			}
		}
		select {
		case <-p.ended:
			t.Fatalf("the copy ended before it was disturbed: %s", p)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("nothing arrives: %s", p)
		}
	}
}

// TestManyFilesOfOneHole: files that consist of one hole are open while they are
// examined, but not until they have arrived.
func TestManyFilesOfOneHole(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	must(t, os.MkdirAll(s.here+"/tree", 0o755))
	const files, descriptors = 2000, 256
	for i := range files {
		name := fmt.Sprintf("%s/tree/%d", s.here, i)
		write(t, name, "")
		must(t, os.Truncate(name, 2*mib))
	}
	few := how{before: []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0" "$@"`, descriptors)}}
	p := run(t, few, append(s.copyArgs(), "-r", "--json", s.here+"/tree", s.url("copy"))...).wantCode(0)
	p.wantSummary(map[string]any{"files": float64(files)})
	s.stop()
}
