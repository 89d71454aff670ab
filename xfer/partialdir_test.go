package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// partialFilesIn returns how many partial files and journals are in a directory.
func partialFilesIn(dir string) (n int) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".gdrcp-") {
			n++
		}
	}
	return n
}

// TestPartialDir: partial files are in the chosen directory, and count for the next copy.
func TestPartialDir(t *testing.T) { over(t, testPartialDir) }

func testPartialDir(t *testing.T, w way) {
	const fileBytes, cutAt = 80 << 20, 30 << 20
	for name, c := range map[string]struct{ push, all bool }{
		"push, in each": {true, false}, "push, one for all": {true, true}, "pull, in each": {false, false}, "pull, one for all": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			if w.leavesOut(name, "push, in each", "pull, one for all") {
				t.Skip("left out over an emulated device; GDRCP_TEST_FULL=1 runs it")
			}
			r := newResumed(t, w, c.push)
			write(t, filepath.Join(r.from, "src"), randomBytes(t, fileBytes))
			o := w.options(t)
			o.PartialDir = ".parts"
			if c.all && c.push {
				o.PartialDir = "/.parts" // below the server's root
			} else if c.all {
				o.PartialDir = filepath.Join(r.to, ".parts")
			}
			r.cutOff(t, o, cutAt)
			parts := filepath.Join(r.to, ".parts")
			if partialFilesIn(r.to) != 0 || partialFilesIn(parts) != 2 {
				t.Errorf("%d partial files at the destination, %d in their directory", partialFilesIn(r.to), partialFilesIn(parts))
			}
			if sum := r.finish(t, o); sum.ResumedBytes == 0 {
				t.Error("nothing that had arrived counted")
			}
			if n := partialFilesIn(parts); n != 0 {
				t.Errorf("%d files are left", n)
			}
		})
	}
}

// Directories for partial files are neither copied nor deleted, except those in a directory that is
// deleted, whatever characters their name has. An entry whose name is only similar is copied.
func TestPartialDirsAreNotCopied(t *testing.T) { over(t, testPartialDirsAreNotCopied) }

func testPartialDirsAreNotCopied(t *testing.T, w way) {
	s := serve(t, w)
	from := t.TempDir()
	name := `p[a]*\`
	write(t, filepath.Join(from, "a", name, "x"), []byte("1"))
	write(t, filepath.Join(from, "a", `pa\`), []byte("2"))
	write(t, filepath.Join(s.root, "dst", "a", name, "kept"), []byte("3"))
	write(t, filepath.Join(s.root, "dst", "gone", name, "x"), []byte("4"))
	o := w.options(t)
	o.Recursive, o.Delete, o.PartialDir = true, true, name
	for range 2 {
		if sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{from + "/."}, s.ep, "dst", o); err != nil || sum.Failed != 0 || !sum.Verified {
			t.Fatalf("%+v, %v", sum, err)
		}
		want := []string{".", "a", "a/" + name, "a/" + name + "/kept", `a/pa\`}
		if got := below(t, filepath.Join(s.root, "dst")); !slices.Equal(got, want) {
			t.Errorf("the destination has %q, want %q", got, want)
		}
		o.DeleteExcluded = true // the sink protects them nevertheless
	}
}

// A directory for partial files that cannot be used ends the copy before any data, with an error
// that names it.
func TestUnusablePartialDir(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	from := t.TempDir()
	write(t, filepath.Join(from, "f"), []byte("1"))
	for _, dir := range []string{"/missing/parts", "/dst/parts", "/../parts"} {
		o := w.options(t)
		o.Recursive, o.PartialDir = true, dir
		if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{from + "/."}, s.ep, "dst/", o); err == nil || !strings.Contains(err.Error(), dir) {
			t.Errorf("%q: %v", dir, err)
		}
		if _, err := os.Stat(filepath.Join(s.root, "dst", "f")); err == nil {
			t.Fatal("the file was copied")
		}
		if err := os.MkdirAll(filepath.Join(s.root, "dst"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	o := w.options(t)
	o.Recursive, o.PartialDir = true, "/proc/parts"
	if _, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"dst"}, t.TempDir()+"/x", o); err == nil || !strings.Contains(err.Error(), "file system") {
		t.Error("a directory on another file system:", err)
	}
}
