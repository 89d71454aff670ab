package cli

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gdrcp/internal/disktest"
	"gdrcp/internal/fusetest"

	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// A copy that fits succeeds, whatever the file system reports as free space. If the
// reported space is too small, the user is warned.
func TestSpaceThatSuffices(t *testing.T) {
	const mib = 1 << 20
	words := bytes.Repeat([]byte("these words can be compressed\n"), 64*mib/30)
	onFUSE := func(q *fusetest.Quirks) func(t *testing.T) string {
		return func(t *testing.T) string { return fusetest.MountQuirks(t, t.TempDir(), q) }
	}
	tells := func(blocks, free uint64, errno syscall.Errno) func(*fuse.StatfsOut) syscall.Errno {
		return func(out *fuse.StatfsOut) syscall.Errno {
			*out = fuse.StatfsOut{Blocks: blocks, Bfree: free, Bavail: free, Bsize: 4096, Frsize: 4096}
			return errno
		}
	}
	for _, c := range []struct {
		name   string
		bytes  int
		dir    func(t *testing.T) string
		warned bool
	}{
		{"root's reserve", 20 * mib, func(t *testing.T) string { return disktest.Mount(t, "40M", "mkfs.ext4", "-q", "-F", "-m", "50") }, false},
		{"compressed", 300 * mib, func(t *testing.T) string {
			dir := disktest.MountSharing(t)
			if err := unix.Mount("", dir, "", unix.MS_REMOUNT, "compress=zstd"); err != nil {
				t.Fatal(err)
			}
			return dir
		}, true},
		{"FUSE without an answer", mib, onFUSE(&fusetest.Quirks{Statfs: tells(0, 0, syscall.ENOSYS)}), false},
		{"FUSE that says 0", mib, onFUSE(&fusetest.Quirks{Statfs: tells(0, 0, 0)}), false},
		{"FUSE that says that nothing is free", mib, onFUSE(&fusetest.Quirks{Statfs: tells(1000, 0, 0)}), false},
		{"FUSE that says less than there is", mib, onFUSE(&fusetest.Quirks{Statfs: tells(1000, 10, 0)}), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			from := filepath.Join(t.TempDir(), "f")
			data := bytes.Repeat(words, c.bytes/len(words)+1)[:c.bytes]
			if err := os.WriteFile(from, data, 0o644); err != nil {
				t.Fatal(err)
			}
			dir := c.dir(t)
			r := gdrcp(t, from, dir).want(t, exitOK)
			if got := strings.Count(r.err, "gdrcp: warning: there may be no room"); (got == 1) != c.warned || got > 1 {
				t.Errorf("it wrote %s", r.err)
			}
			if got, err := os.ReadFile(dir + "/f"); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes arrived of %d, %v", len(got), len(data), err)
			}
			if !c.warned {
				return
			}
			if r := gdrcp(t, "--no-space-check", from, dir+"/g"); strings.Contains(r.err, "warning") {
				t.Errorf("with --no-space-check it wrote %s", r.err)
			}
			r = gdrcp(t, "--json", from, dir+"/h")
			if e := r.event(t, "warning"); e["end"] != "remote" || e["text"] == "" {
				t.Errorf("the event is %v", e)
			}
		})
	}
}
