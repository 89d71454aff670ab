package program

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma/rdmatest"
)

// quickFile is one case of the quick check: what the destination has under a name.
type quickFile struct {
	name  string
	later time.Duration // than the source's time
	// precise means that the times differ only in nanoseconds. rsync compares these
	// only with --modify-window=-1; the program always does.
	precise bool
}

// quickTime is the source's time. cut is its distance to the time that a file system
// with whole seconds stores.
const (
	quickTime = 1_500_000_000_123_456_789
	cut       = -123_456_789
)

// quickFiles returns the cases, in the order of names.
func quickFiles() []quickFile {
	return []quickFile{
		{"cut", cut, false}, {"equal", 0, false}, {"less", -100 * time.Millisecond, true}, {"more", 100 * time.Millisecond, true},
		{"newer", time.Hour, false}, {"older", -time.Hour, false},
	}
}

// fillQuick makes a tree with each of the files, with that text, at the source's time
// or at the case's own.
func fillQuick(t *testing.T, dir, text string, own bool) {
	t.Helper()
	for _, f := range quickFiles() {
		for _, size := range []string{"", "-size"} {
			path, late := dir+"/"+f.name+size, time.Duration(0)
			if own {
				late = f.later
			}
			data := text
			if own {
				data += size
			}
			write(t, path, data)
			must(t, os.Chmod(path, 0o640))
			when := time.Unix(0, quickTime).Add(late)
			must(t, os.Chtimes(path, when, when))
		}
	}
	write(t, dir+"/only-"+text, text)
}

// transferred returns the names whose text is the source's.
func transferred(t *testing.T, dir string) (names []string) {
	t.Helper()
	for name, st := range namesBelow(t, dir) {
		if st.Mode().IsRegular() {
			if data, err := os.ReadFile(dir + "/" + name); err != nil || string(data) == "source" {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}

// TestQuickCheckAsRsync copies over files whose times and sizes are the same or differ,
// with every set of the options that decide which files are kept, with rsync and with
// the program in both directions, and compares what was transferred.
func TestQuickCheckAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	for at, dir := range []string{s.here, s.there} {
		fillQuick(t, dir+"/tree", "source", false)
		must(t, os.Mkdir([]string{s.here, s.there}[at]+"/copies", 0o755))
	}
	old := t.TempDir() + "/old"
	fillQuick(t, old, "target", true)
	for set := range 1 << 4 {
		args := []string{"-rp"}
		for bit, option := range []string{"-t", "-u", "-I", "--size-only"} {
			if set>>bit&1 != 0 {
				args = append(args, option)
			}
		}
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			want := quickWanted(t, args, s.here+"/tree/", old+"/")
			if set == 0 || set == 2 {
				// Without -t the program copies files of the same size and time.
				want = append(want, "cut", "equal")
				slices.Sort(want)
			}
			for _, d := range []direction{{true}, {false}} {
				from, to := s.ends(d)
				copies := fmt.Sprintf("copies/%d", set)
				rsync(t, "-a", old+"/", to+"/"+copies+"/")
				inode := inodeOf(t, to+"/"+copies+"/equal")
				words := []string{from + "/tree/.", s.url(copies)}
				if !d.push {
					words = []string{s.url("tree/."), to + "/" + copies}
				}
				p := s.copy(t, append(append(slices.Clone(args), "-v"), words...)...).wantCode(0)
				if got := transferred(t, to+"/"+copies); !slices.Equal(got, want) {
					t.Errorf("%v: transferred\n%q, rsync\n%q: %s", d, got, want, p)
				}
				if kept := !slices.Contains(want, "equal"); kept != (inodeOf(t, to+"/"+copies+"/equal") == inode) {
					t.Errorf("%v: another file than before, and kept: %v", d, kept)
				}
			}
		})
	}
}

// quickWanted returns what rsync transfers. For files whose times differ only in
// nanoseconds, it asks rsync with nanoseconds.
func quickWanted(t *testing.T, args []string, from, old string) (want []string) {
	t.Helper()
	for _, window := range []string{"0", "-1"} {
		to := t.TempDir() + "/copy/"
		rsync(t, "-a", old, to)
		rsync(t, append(slices.Clone(args), "--modify-window="+window, from, to)...)
		for _, name := range transferred(t, to) {
			of := slices.IndexFunc(quickFiles(), func(f quickFile) bool { return f.name == strings.TrimSuffix(name, "-size") })
			if precise := of >= 0 && quickFiles()[of].precise; precise == (window == "-1") {
				want = append(want, name)
			}
		}
	}
	slices.Sort(want)
	return want
}

func inodeOf(t *testing.T, path string) uint64 {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Lstat(path, &st))
	return st.Ino
}

// TestSecondCopyAsRsync copies a tree whose files the destination has, with other
// modes, owners, attributes and times, and lets rsync look for differences: kept files
// get the source's metadata and hard links, and extraneous ones are deleted.
func TestSecondCopyAsRsync(t *testing.T) {
	onHost(t)
	needRsync(t)
	rdmatest.BesideOthers(t)
	s := newSides(t, tcpLink())
	for _, options := range []string{"-aH --delete", "-aH --delete --size-only", "-aHX --delete", "-rt --size-only", "-rp --size-only"} {
		for _, d := range []direction{{true}, {false}} {
			from, to := s.ends(d)
			tree, copied := from+"/tree", to+"/copied"
			for _, dir := range []string{tree, copied} {
				must(t, os.RemoveAll(dir))
				for _, name := range []string{"a", "b", "d/c"} {
					write(t, dir+"/"+name, name)
					must(t, os.Chtimes(dir+"/"+name, time.Unix(0, quickTime), time.Unix(0, quickTime)))
				}
			}
			must(t, os.Link(tree+"/b", tree+"/d/b"))
			must(t, os.Chmod(copied+"/a", 0o600))
			must(t, os.Chmod(copied+"/d/c", 0))
			if os.Geteuid() == 0 {
				must(t, os.Lchown(copied+"/a", int(nobody), int(nobody)))
			}
			if strings.Contains(options, "size") {
				must(t, os.Chtimes(copied+"/a", time.Unix(1e9, 0), time.Unix(1e9, 0)))
			}
			write(t, copied+"/surplus", "surplus")
			want := t.TempDir() + "/want"
			rsync(t, "-aH", copied+"/", want+"/")
			args := strings.Fields(options)
			rsync(t, append(slices.Clone(args), tree+"/", want+"/")...)
			inode := inodeOf(t, copied+"/a")
			words := []string{tree + "/.", s.url("copied")}
			if !d.push {
				words = []string{s.url("tree/."), copied}
			}
			p := s.copy(t, append(append(slices.Clone(args), "-v"), words...)...).wantCode(0)
			judge := []string{"-nic", "-rlptogH", "--delete"}
			if strings.HasPrefix(options, "-r") {
				judge[1] = "-" + strings.Trim(strings.Fields(options)[0], "-") + "log" // new entries have their own times
				sameNow(t, want, copied)
			}
			if left := rsync(t, append(judge, want+"/", copied+"/")...); left != "" {
				t.Errorf("%v, %q: rsync finds differences:\n%s%s", d, options, left, p)
			}
			if inodeOf(t, copied+"/a") != inode {
				t.Errorf("%v, %q: what was the same is another file", d, options)
			}
		}
	}
}
