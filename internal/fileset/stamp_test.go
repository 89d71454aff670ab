package fileset

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// TestStampNow: what is asked of the server, and what stat(2) tells, are the same.
func TestStampNow(t *testing.T) {
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "f=content", "l>f")
	h, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for _, name := range []string{"", "f", "l"} {
		var st unix.Stat_t
		if err := fsys.Fstatat(int(h.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW|unix.AT_EMPTY_PATH); err != nil {
			t.Fatal(err)
		}
		if now, err := StampNow(int(h.Fd()), name); err != nil || now != StampOf(&st) {
			t.Errorf("%q: %+v, %v; want %+v", name, now, err, StampOf(&st))
		}
	}
	if _, err := StampNow(int(h.Fd()), "none"); err != unix.ENOENT {
		t.Errorf("none: %v, want %v", err, unix.ENOENT)
	}
}

// TestFreshFor: who waits, and how long.
func TestFreshFor(t *testing.T) {
	const ms, whole = time.Millisecond, 1_700_000_000 * time.Second
	for _, c := range []struct {
		ctime, mtime, age, want time.Duration
	}{
		{whole + ms, 0, 0, 20 * ms}, {whole + ms, 0, 5 * ms, 15 * ms},
		{whole + ms, 0, 20*ms - 1, 1}, {whole + ms, 0, 20 * ms, 0}, {whole + ms, 0, time.Hour, 0},
		{whole + ms, 0, -1, 20 * ms}, {whole + ms, 0, -time.Hour, 20 * ms}, // in the future
		{whole, ms, 5 * ms, 15 * ms}, // its mtime shows a change
		{whole + time.Second, 0, 0, 1020 * ms}, {whole + time.Second, whole, 1019 * ms, ms}, {whole + time.Second, 0, 1020 * ms, 0},
		{whole, 0, 0, 2020 * ms}, {whole, 0, 1500 * ms, 520 * ms}, {whole, 0, 2020 * ms, 0}, // even: FAT
		{whole + time.Second, 0, -time.Hour, 1020 * ms},
		{0, 0, 1 << 62, 0},
	} {
		s := Stamp{CtimeNs: int64(c.ctime), MtimeNs: int64(c.mtime)}
		if got := s.FreshFor(time.Unix(0, int64(c.ctime+c.age))); got != c.want {
			t.Errorf("mtime %d, changed at %d, %v ago: %v, want %v", c.mtime, c.ctime, c.age, got, c.want)
		}
	}
}
