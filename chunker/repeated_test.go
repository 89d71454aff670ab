package chunker

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
)

// repeating makes a getdents64(2) that gives all names of a directory twice, the
// second time as of another type, as if it had changed meanwhile.
func repeating() func(fd int, buf []byte) (int, error) {
	again := make(map[int]bool)
	return func(fd int, buf []byte) (int, error) {
		n, err := unix.Getdents(fd, buf)
		if n == 0 && err == nil && !again[fd] {
			again[fd] = true
			if _, err := unix.Seek(fd, 0, 0); err != nil {
				return 0, err
			}
			n, err = unix.Getdents(fd, buf)
		} else if n == 0 {
			delete(again, fd)
		}
		const typeAt, lengthAt = 18, 16
		for at := 0; again[fd] && at < n; at += int(buf[at+lengthAt]) | int(buf[at+lengthAt+1])<<8 {
			buf[at+typeAt] = unix.DT_FIFO
		}
		return n, err
	}
}

// A name that readdir gives twice is found once, as what it is, however its
// directory is sorted, and so is a source's that is named twice: as a problem.
func TestWalkRepeatedNames(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	specs, want := []string{"d/", "d/x=", "link>f"}, []string{".", "d", "d/x", "link"}
	for i := range 300 {
		name := fmt.Sprintf("file-%03d", i)
		specs, want = append(specs, name+"="), append(want, name)
	}
	treetest.MakeTree(t, dir, specs...)
	slices.Sort(want)
	for _, spill := range []bool{false, true} {
		w := openLocal(t, false, Source{dir, "."}).Walk(true)
		w.names.Getdents = repeating()
		if spill {
			w.names.Budget, w.names.MinRun, w.names.Spill.Runs = 400, 200, 5
		}
		got, problems := drain(t, w)
		if !slices.Equal(got, want) || len(problems) != 0 {
			t.Errorf("spilled: %v: got %d entries, want %d: %q, %v", spill, len(got), len(want), got, problems)
		}
		if spill && w.names.Spill.File == nil {
			t.Error("nothing was spilled")
		}
		w.Close()
	}
	_, problems := walkAll(t, openLocal(t, false, Source{dir + "/d", "d"}, Source{dir + "/d", "d"}), true)
	if !errors.Is(problems["d"], ErrDuplicate) {
		t.Errorf("a source named twice: %v", problems)
	}
}
