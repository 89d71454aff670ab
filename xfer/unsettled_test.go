package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// freeze lets nothing about a directory be changed, until the test ends (chattr +i).
func freeze(t *testing.T, dir string) error {
	const immutable = 0x10 // FS_IMMUTABLE_FL, linux/fs.h
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, immutable); err != nil {
		f.Close()
		return err
	}
	t.Cleanup(func() {
		defer f.Close()
		if err := unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, 0); err != nil {
			t.Errorf("make %s changeable again: %v", dir, err)
		}
	})
	return nil
}

// If a directory does not get its time, the results of both ends report that. If the time is
// required, both report the directory as failed, although they reported it as copied before.
// Everything else is copied.
func TestDirectoryThatIsNotSettled(t *testing.T) {
	xfer.OnHost(t)
	w := tcpWay(t)
	if err := freeze(t, t.TempDir()); err != nil {
		t.Skipf("no file can be made immutable here: %v; needs root, and ext4, xfs or btrfs at TMPDIR", err)
	}
	for _, push := range []bool{true, false} {
		for _, required := range []bool{true, false} {
			t.Run(fmt.Sprintf("push %v, required %v", push, required), func(t *testing.T) { testNotSettled(t, w, push, required) })
		}
	}
}

func testNotSettled(t *testing.T, w way, push, required bool) {
	var src, dst string
	// d exists when data flows, and is settled when e exists.
	frozen := sync.OnceValue(func() error { return freeze(t, filepath.Join(dst, "d")) })
	faults := rdmatest.Faults{Corrupt: func(p rdmatest.Posted) (int, bool) {
		if isPayload(p) {
			_ = frozen() // checked below
		}
		return 0, false
	}}
	atServer := w
	if !push {
		atServer.provider, faults = rdmatest.Faulty(w.provider, faults), rdmatest.Faults{}
	}
	s, here := serve(t, atServer), t.TempDir()
	if src, dst = filepath.Join(here, "src"), filepath.Join(s.root, "copy"); !push {
		src, dst = filepath.Join(s.root, "src"), filepath.Join(here, "copy")
	}
	write(t, filepath.Join(src, "c", "f"), []byte("c"))
	write(t, filepath.Join(src, "e"), randomBytes(t, 100))
	if err := os.Mkdir(filepath.Join(src, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	var texts []string
	o := w.options(t)
	o.Times, o.RequireAttributes = true, required
	o.Report = func(e xfer.Event) {
		if e.Kind == xfer.EventFile && e.Outcome != xfer.Copied {
			texts = append(texts, e.Path+" "+e.Text)
		}
	}
	run := func() (*xfer.Summary, error) {
		return w.client(faults).Push(t.Context(), []string{src}, s.ep, "copy", o)
	}
	if !push {
		run = func() (*xfer.Summary, error) {
			return w.client(faults).Pull(t.Context(), s.ep, []string{"src"}, dst, o)
		}
	}
	sum, err := run()
	if err := frozen(); err != nil {
		t.Fatalf("freeze: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	end := s.lastEnd(t, 1)
	if !required {
		isTime := func(l []xfer.Unkept) bool {
			return len(l) == 1 && l[0].Attribute == fileset.AttributeTime && l[0].First == "d" && l[0].Entries == 1
		}
		if sum.Failed != 0 || sum.Files != 2 || !sum.Verified || len(texts) > 0 || !isTime(sum.Unkept) {
			t.Errorf("%q, summary %+v", texts, sum)
		}
		if end.Err != nil || !isTime(end.Summary.Unkept) {
			t.Errorf("server: %+v", end)
		}
		return
	}
	if sum.Failed != 1 || sum.Files != 2 || !sum.Verified || len(texts) != 1 || !strings.HasPrefix(texts[0], `d set time of "d": `) {
		t.Errorf("%q, summary %+v", texts, sum)
	}
	if end.Err != nil || end.Summary.Failed != 1 || end.Summary.Files != 2 {
		t.Errorf("server: %+v", end)
	}
}
