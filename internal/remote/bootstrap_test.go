package remote

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// stranger is a user who is neither root nor, usually, the one who runs the tests.
const stranger = 65534

// notShort skips tests that start many programs in short runs.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts many programs: run it without -short")
	}
}

// Nothing is started from a directory in which others could replace it, or that others
// could replace; nor is anything stored there. The message names the directory.
func TestBootstrapWhereOthersWrite(t *testing.T) {
	notShort(t)
	cache := cacheOf(t, os.Getenv("PATH"))
	xdg, home := filepath.Dir(cache), os.Getenv("HOME")
	up := filepath.Dir(xdg)
	binaries := []Binary{{Path: smallBinary(t), Machine: uname(t)}}
	o, stderr := testOrigin(t, "")
	bootstrap := func() error {
		link, err := o.Bootstrap(t.Context(), binaries, func(string) {})
		if err == nil {
			err = link.Close()
		}
		return err
	}
	if err := bootstrap(); err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	for _, dir := range []string{up, xdg, cache} { // created by the script
		if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", info, err)
		}
	}
	for _, c := range []struct {
		name, dir string
		mode      os.FileMode
		fine      bool
	}{
		{"the group writes to the cache", cache, 0o770, false},
		{"others write to the cache", cache, 0o702, false},
		{"others write to the cache, sticky", cache, os.ModeSticky | 0o777, false},
		{"the group writes above", xdg, 0o770, false},
		{"the group writes far above", up, 0o775, false},
		{"others write far above", up, 0o757, false},
		{"others write to the home directory", home, 0o777, false},
		{"others write above, where each keeps what is his", up, os.ModeSticky | 0o777, true},
		{"others read", xdg, 0o755, true},
		{"others write above the home directory", filepath.Dir(home), 0o777, true},
	} {
		for _, stored := range []bool{true, false} {
			if !stored {
				if err := os.Remove(onlyFile(t, cache)); err != nil {
					t.Fatal(err)
				}
			}
			was, err := os.Stat(c.dir)
			if err := errors.Join(err, os.Chmod(c.dir, c.mode)); err != nil {
				t.Fatal(err)
			}
			err = bootstrap()
			switch {
			case c.fine && err != nil:
				t.Errorf("%s: %v: %s", c.name, err, stderr)
			case !c.fine && (err == nil || !strings.Contains(err.Error(), c.dir+" on here belongs to another user, or others may write to it") ||
				!strings.Contains(err.Error(), "chmod go-w") || strings.Contains(err.Error(), "\n")):
				t.Errorf("%s: %v; want %s named", c.name, err, c.dir)
			}
			if err := os.Chmod(c.dir, was.Mode()); err != nil {
				t.Fatal(err)
			}
			if entries, err := os.ReadDir(cache); !stored && !c.fine && (err != nil || len(entries) > 0) {
				t.Errorf("%s: stored all the same: %v, %v", c.name, entries, err)
			}
			if err := bootstrap(); err != nil {
				t.Fatalf("%v: %s", err, stderr)
			}
		}
	}
}

// A binary that others may write to can change at any time.
func TestBootstrapOfWritableFile(t *testing.T) {
	cache := cacheOf(t, os.Getenv("PATH"))
	o, stderr := testOrigin(t, "")
	copies, binaries := 0, []Binary{{Path: smallBinary(t), Machine: uname(t)}}
	for _, mode := range []os.FileMode{0, 0o720, 0o702, 0o755} {
		if mode != 0 {
			if err := os.Chmod(onlyFile(t, cache), mode); err != nil {
				t.Fatal(err)
			}
		}
		link, err := o.Bootstrap(t.Context(), binaries, func(string) { copies++ })
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		link.Close()
	}
	if copies != 3 {
		t.Errorf("%d copies, want 3", copies)
	}
}

// A link on the path to the cache does not bypass the check of the directories.
func TestBootstrapThroughLink(t *testing.T) {
	cache := cacheOf(t, os.Getenv("PATH"))
	real := filepath.Join(os.Getenv("HOME"), "re al")
	if err := errors.Join(os.MkdirAll(filepath.Dir(cache), 0o700), os.MkdirAll(real+"/on", 0o700), os.Symlink(real+"/on", cache)); err != nil {
		t.Fatal(err)
	}
	o, stderr := testOrigin(t, "")
	link, err := o.Bootstrap(t.Context(), []Binary{{Path: self(t), Machine: uname(t)}}, func(string) {})
	if err != nil {
		t.Fatalf("%v: %s", err, stderr)
	}
	if offer, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)}); err != nil || filepath.Dir(offer.Home) != real+"/on" {
		t.Errorf("%+v, %v", offer, err)
	}
	if err := errors.Join(link.Close(), os.Chmod(real, 0o770)); err != nil {
		t.Fatal(err)
	}
	_, err = o.Bootstrap(t.Context(), []Binary{{Path: self(t), Machine: uname(t)}}, func(string) {})
	if err == nil || !strings.Contains(err.Error(), real+" on here belongs") {
		t.Errorf("%v", err)
	}
}

// The check of a directory in each shell, by users who own it and who do not.
func TestOwn(t *testing.T) {
	for _, shell := range [][]string{{"sh"}, {"bash", "--posix"}, {"busybox", "sh"}} {
		t.Run(shell[0], func(t *testing.T) {
			if _, err := exec.LookPath(shell[0]); err != nil {
				t.Skipf("%v: apt-get install %s", err, shell[0])
			}
			testOwn(t, shell)
		})
	}
}

func testOwn(t *testing.T, shell []string) {
	top := t.TempDir()
	odd := filepath.Join(top, "a *", "b\nc")
	d := filepath.Join(odd, "d")
	if err := errors.Join(os.MkdirAll(d, 0o755), os.Symlink(odd, top+"/link"), os.Chmod(filepath.Dir(top), 0o755), os.Chmod(top, 0o755)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, dir string
		as        int // user id
		owner     map[string]int
		mode      map[string]os.FileMode
		home      string
		bad       string // the reported directory; empty if all is well
	}{
		{name: "all is one's own", dir: d},
		{name: "root's", dir: d, as: stranger},
		{name: "the directory is one's own, the rest root's", dir: d, as: stranger, owner: map[string]int{d: stranger}},
		{name: "the directory is a stranger's", dir: d, owner: map[string]int{d: stranger}, bad: d},
		{name: "what it is in is a stranger's", dir: d, owner: map[string]int{top: stranger}, bad: top},
		{name: "above home", dir: d, owner: map[string]int{top: stranger}, home: odd},
		{name: "home itself", dir: d, owner: map[string]int{odd: stranger}, home: odd, bad: odd},
		{name: "as far as the root", dir: "/etc", home: "/none"},
		{name: "sticky", dir: d, mode: map[string]os.FileMode{odd: os.ModeSticky | 0o777}},
		{name: "sticky, without search by others", dir: d, mode: map[string]os.FileMode{odd: os.ModeSticky | 0o772}},
		{name: "sticky, a stranger's", dir: d, owner: map[string]int{odd: stranger}, mode: map[string]os.FileMode{odd: os.ModeSticky | 0o777}, bad: odd},
		{name: "a stranger's in a sticky one", dir: d, owner: map[string]int{odd: stranger}, mode: map[string]os.FileMode{filepath.Dir(odd): os.ModeSticky | 0o777}, bad: odd},
		// A link that was put there after the path was resolved.
		{name: "a link", dir: top + "/link/d", bad: top + "/link"},
		{name: "nothing", dir: top + "/none/d", bad: top + "/none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if os.Geteuid() != 0 && (c.as != 0 || len(c.owner) > 0) {
				t.Skip("only root may try it: sudo go test")
			}
			for dir, owner := range c.owner {
				if err := os.Chown(dir, owner, -1); err != nil {
					t.Fatal(err)
				}
				defer os.Chown(dir, os.Geteuid(), -1)
			}
			for dir, mode := range c.mode {
				if err := os.Chmod(dir, mode); err != nil {
					t.Fatal(err)
				}
				defer os.Chmod(dir, 0o755)
			}
			home := c.home
			if home == "" {
				home = filepath.Dir(top) // anybody may own the parents
			}
			script := scriptCheck + "h=$1; d=$2; bad=; own && echo fine || printf %s \"$bad\""
			cmd := exec.Command(shell[0], append(shell[1:], "-c", script, "sh", home, c.dir)...)
			cmd.Dir = "/"
			if c.as != 0 {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(c.as), Gid: uint32(c.as)}}
			}
			out, err := cmd.Output()
			want := c.bad
			if want == "" {
				want = "fine\n"
			}
			if err != nil || string(out) != want {
				t.Errorf("%q, %v; want %q", out, err, want)
			}
		})
	}
}

// writeProgram writes a script as gdrcp in a new directory.
func writeProgram(t *testing.T, text string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "gdrcp"), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// The cache takes precedence over the PATH, the PATH over a copy, and an
// explicit path over both.
func TestBootstrapOrder(t *testing.T) {
	notShort(t)
	mark := filepath.Join(t.TempDir(), "mark")
	good := "echo >'" + mark + "'; exec '" + self(t) + `' "$@"` + "\n"
	for _, c := range []struct {
		name, program  string // the program in the PATH; empty: none
		cached, unsafe bool
		named          bool // by RemotePath
		copies         int
		ran            bool // whether the program in the PATH ran
	}{
		{name: "cached, and in the PATH", program: good, cached: true},
		{name: "in the PATH", program: good, ran: true},
		{name: "in the PATH, and the cache is not safe", program: good, cached: true, unsafe: true, ran: true},
		{name: "named", program: good, cached: true, named: true, ran: true},
		{name: "nowhere", copies: 1},
		{name: "named, and nowhere", named: true, copies: 1},
		{name: "another version", program: farEndEnv + "=4\nexport " + farEndEnv + "\n" + good, copies: 1, ran: true},
		{name: "one without a far end", program: "echo >'" + mark + "'; exit 2\n", copies: 1, ran: true},
		{name: "one that is no program", program: "exit 126\n", copies: 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := os.Getenv("PATH")
			if c.program != "" {
				path = writeProgram(t, c.program) + ":" + path
			}
			cache := cacheOf(t, path)
			o, stderr := testOrigin(t, "")
			binaries := []Binary{{Path: self(t), Machine: uname(t)}}
			copies := 0
			bootstrap := func() {
				t.Helper()
				link, err := o.Bootstrap(t.Context(), binaries, func(string) { copies++ })
				if err != nil {
					t.Fatalf("%v: %s", err, stderr)
				}
				if _, err := link.Talk.AskServe(t.Context(), &Serve{Key: newKey(t)}); err != nil {
					t.Error(err)
				}
				link.Close()
			}
			if c.cached {
				t.Setenv("PATH", os.Getenv("PATH")[strings.IndexByte(path, ':')+1:])
				bootstrap()
				t.Setenv("PATH", path)
			}
			if c.unsafe {
				if err := os.Chmod(cache, 0o770); err != nil {
					t.Fatal(err)
				}
			}
			if c.named {
				o.RemotePath = "gdrcp"
			}
			_ = os.Remove(mark)
			copies = 0
			bootstrap()
			if _, err := os.Stat(mark); (err == nil) != c.ran || copies != c.copies {
				t.Errorf("%d copies, want %d; that of the PATH ran: %v, want %v", copies, c.copies, err == nil, c.ran)
			}
			if stderr.Len() > 0 && !c.named {
				t.Errorf("the user sees %q", stderr)
			}
		})
	}
}
