package cli

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"gdrcp/internal/fusetest"

	"github.com/hanwen/go-fuse/v2/fs"
	"github.com/hanwen/go-fuse/v2/fuse"
	"golang.org/x/sys/unix"
)

// intoFull runs the program with a standard output on which every write fails.
func intoFull(t *testing.T, args ...string) result {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no device that is always full: %v", err)
	}
	defer full.Close()
	p, _, errs := newProgram()
	p.stdout = full
	return result{code: p.run(t.Context(), append([]string{"gdrcp"}, args...)), err: errs.String()}
}

// A full standard error does not end a copy, but changes the exit code.
func TestFullStandardError(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no device that is always full: %v", err)
	}
	defer full.Close()
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{dir + "/a", s.url("a")}, exitError},
		{[]string{"-q", dir + "/a", s.url("quiet")}, exitOK}, // has nothing to print
		{[]string{dir + "/a", dir + "/none", s.url("")}, exitPartial},
	} {
		p, _, _ := newProgram()
		p.stderr = full
		if code := p.run(t.Context(), append([]string{"gdrcp"}, c.args...)); code != c.code {
			t.Errorf("gdrcp %q: exit code %d, want %d", c.args, code, c.code)
		}
	}
	if got := listFiles(t, s.root); got["a"] != "A" || got["quiet"] != "A" {
		t.Errorf("the copies made %v", got)
	}
}

// failsOnce fails its second write.
type failsOnce struct {
	strings.Builder
	writes int
}

func (f *failsOnce) Write(b []byte) (int, error) {
	if f.writes++; f.writes == 2 {
		return 0, syscall.ENOSPC
	}
	return f.Builder.Write(b)
}

// A log continues when the disk has room again; a list does not continue after a gap.
func TestOutputAfterAnError(t *testing.T) {
	for resumes, want := range map[bool]string{true: "acd", false: "a"} {
		f := &failsOnce{}
		o := &output{name: "it", w: f, resumes: resumes}
		for _, s := range []string{"a", "b", "c", "d"} {
			_, _ = o.Write([]byte(s))
		}
		if f.String() != want || !errors.Is(o.writeError(), syscall.ENOSPC) {
			t.Errorf("resumes %v: %q was written, want %q; %v", resumes, f.String(), want, o.writeError())
		}
	}
}

// A failed write to standard output is reported once, and does not hide a worse error.
func TestFullStandardOutput(t *testing.T) {
	const line = "write standard output: no space left on device\n"
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "u/a": "B"})
	gdrcp(t, "manifest", "create", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--help"}, exitError},
		{[]string{"--version"}, exitError},
		{[]string{"manifest", "show", dir + "/m"}, exitError},
		{[]string{"manifest", "create", dir + "/t"}, exitError},
		{[]string{"manifest", "verify", "-q", dir + "/m", dir + "/u"}, exitIntegrity},
		{[]string{"--json", "-r", dir + "/t", s.url("copy")}, exitError},
		{[]string{"bench", "--json", "--bytes", "1M", "--rounds", "0", "rdma://" + s.addr}, exitError},
	} {
		r := intoFull(t, c.args...).want(t, c.code)
		if !strings.HasSuffix(r.err, line) || strings.Count(r.err, "no space left") != 1 {
			t.Errorf("gdrcp %q wrote %q", c.args, r.err)
		}
	}
	if got := listFiles(t, s.root); got["copy/a"] != "A" {
		t.Errorf("the copy whose events were lost made %v", got)
	}
}

// lateFile is a file that accepts all writes but reports on close that there was no
// room, like a file on NFS with a quota.
type lateFile struct {
	fs.Inode
	full  atomic.Bool
	taken atomic.Int64
}

func (f *lateFile) Open(context.Context, uint32) (fs.FileHandle, uint32, syscall.Errno) {
	return nil, fuse.FOPEN_DIRECT_IO, 0
}

func (f *lateFile) Write(_ context.Context, _ fs.FileHandle, data []byte, _ int64) (uint32, syscall.Errno) {
	f.taken.Add(int64(len(data)))
	return uint32(len(data)), 0
}

func (f *lateFile) Flush(context.Context, fs.FileHandle) syscall.Errno {
	if f.full.Load() {
		return syscall.EDQUOT
	}
	return 0
}

// lateDisk mounts a lateFile until the test ends, and returns its name.
func lateDisk(t *testing.T) (f *lateFile, name string) {
	t.Helper()
	f = &lateFile{}
	root := &fs.Inode{}
	dir := fusetest.Mount(t, root, func(ctx context.Context) {
		root.AddChild("out", root.NewPersistentInode(ctx, f, fs.StableAttr{Mode: unix.S_IFREG}), false)
	})
	return f, dir + "/out"
}

// If closing standard output fails, that is reported once like other errors, and no
// success is reported. If closing standard error fails, the exit code shows it.
func TestOutputThatIsLostWhenItIsClosed(t *testing.T) {
	late, name := lateDisk(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	gdrcp(t, "manifest", "create", dir+"/t", "-o", dir+"/m").want(t, exitOK)
	run := func(toErr bool, args ...string) (code int, text string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, _, errs := newProgram()
		if p.stdout = f; toErr {
			p.stdout, p.stderr = errs, f
		}
		code = p.run(t.Context(), append([]string{"gdrcp"}, args...))
		_ = f.Close() // returns the same error again
		return code, errs.String()
	}
	for _, args := range [][]string{{"manifest", "create", dir + "/t"}, {"manifest", "show", dir + "/m"}, {"--version"}, {"--json", "-r", dir + "/t", dir + "/copy"}} {
		late.full.Store(false)
		before := late.taken.Load()
		if code, text := run(false, args...); code != exitOK || strings.Contains(text, "quota") || late.taken.Load() == before {
			t.Errorf("with room: gdrcp %q: exit code %d, %s", args, code, text)
		}
		late.full.Store(true)
		if code, text := run(false, args...); code != exitError || text != "gdrcp: write standard output: disk quota exceeded\n" {
			t.Errorf("gdrcp %q: exit code %d, %s", args, code, text)
		}
	}
	if code, _ := run(true, "-r", dir+"/t", dir+"/copy"); code != exitError {
		t.Errorf("standard error: exit code %d", code)
	}
}
