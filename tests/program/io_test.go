package program

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// onDisk returns a directory on a file system that supports O_DIRECT and is not in
// memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "gdrcp-program-")
	must(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	fd, err := unix.Open(dir+"/try", unix.O_RDWR|unix.O_CREAT|unix.O_DIRECT, 0o600)
	if err == nil {
		must(t, unix.Close(fd))
		must(t, os.Remove(dir+"/try"))
	}
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	if err != nil || st.Type == unix.TMPFS_MAGIC {
		t.Skipf("/var/tmp is on no disk that takes O_DIRECT (%v): mount one there", err)
	}
	return dir
}

// autoWritesDirectly reports whether auto uses O_DIRECT on the file system of a
// directory.
func autoWritesDirectly(t *testing.T, dir string) bool {
	t.Helper()
	var st unix.Statfs_t
	must(t, unix.Statfs(dir, &st))
	return st.Type == unix.EXT4_SUPER_MAGIC || st.Type == unix.XFS_SUPER_MAGIC
}

// The client chooses how files get to the disk, for both ends, and prints that at the
// end.
func TestIO(t *testing.T) {
	onHost(t)
	t.Setenv("TMPDIR", onDisk(t))
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/tree/big", 9*mib+77, 2)
		makeSparse(t, from+"/tree/sparse", 64*mib, 2*mib)
		makeFile(t, from+"/tree/small", 77, 3)
		for _, c := range []struct {
			word        string
			write, read string // the I/O mode of most of the bytes
		}{{"direct", "direct_bytes", "direct_bytes"}, {"buffered", "buffered_bytes", "buffered_bytes"}, {"auto", "direct_bytes", "buffered_bytes"}} {
			if c.word == "auto" && !autoWritesDirectly(t, to) {
				continue
			}
			name := "copy-" + c.word
			p := s.copy(t, append([]string{"--json", "-r", "--verify-written", "--io", c.word}, s.operands(d, s.via(), "tree", name)...)...).wantCode(0)
			sameTree(t, from+"/tree", to+"/"+name, false)
			// Each end assumes that the other uses the page cache unless it is informed
			// otherwise.
			for _, end := range []struct {
				field, rung string
				isOwn       bool
			}{{"write_io", c.write, !d.push}, {"read_io", c.read, d.push}} {
				by, _ := p.event("summary")[end.field].(map[string]any)
				if n, _ := by[end.rung].(float64); n < 9*mib && (end.rung == "direct_bytes" || end.isOwn) {
					t.Errorf("--io %s: %s %v", c.word, end.field, by)
				}
			}
			if a := allocated(t, to+"/"+name+"/sparse"); a > 3*mib {
				t.Errorf("--io %s: holes take %d bytes", c.word, a)
			}
		}
	})
}

// If a requested I/O mode is not available, the copy ends with a line that names the
// file and the mode, whichever end writes.
func TestIOThatIsNotThere(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		disk := to + "/disk" // not on the served directory itself, because that would then be a different one
		if err := os.Mkdir(disk, 0o755); err != nil {
			t.Fatal(err)
		}
		smallDisk(t, disk, "64m")
		makeFile(t, from+"/big", 2*mib, 2)
		p := s.copy(t, append([]string{"--io", "direct"}, s.operands(d, s.via(), "big", "disk/copy")...)...)
		name := "/disk/copy" // as the server names it
		if !d.push {
			name = to + name
		}
		p.wantFailure(5, fmt.Sprintf(`(?m)^gdrcp: .*%s: the file system does not do this: direct I/O: it is in memory$`, regexp.QuoteMeta(strconv.Quote(name))))
		noTemps(t, disk)
		s.copy(t, s.operands(d, s.via(), "big", "disk/copy")...).wantCode(0)
	})
	run(t, how{}, "--io", "quick", "a", "b").wantFailure(2, `--io`)
}
