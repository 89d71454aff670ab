package dest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// childVariable names what a process started by these tests is to do.
const childVariable = "GDRCP_CHUNKER_TEST_CHILD"

func TestMain(m *testing.M) {
	role, dir, _ := strings.Cut(os.Getenv(childVariable), ":")
	var err error
	switch role {
	case "":
		os.Exit(m.Run())
	case "write until killed":
		err = writeUntilKilled(dir)
	case "publish":
		err = publishSome(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func child(role, dir string, wrapper ...string) *exec.Cmd {
	args := append(wrapper, os.Args[0])
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childVariable+"="+role+":"+dir)
	cmd.Stderr = os.Stderr
	return cmd
}

func childSink(dir string) (*Sink, error) {
	s, err := Open(Options{Dest: dir})
	if err != nil {
		return nil, err
	}
	return s, s.Place(&topDir, ".")
}

// crashContent is what a file of this number holds when it is whole.
func crashContent(i int) string { return strings.Repeat(fmt.Sprintf("%08d", i%8), 20_000) }

func writeUntilKilled(dir string) error {
	s, err := childSink(dir)
	if err != nil {
		return err
	}
	if _, err := s.Create(fileEntry("never", "finished"), nil); err != nil {
		return err
	}
	fmt.Println("ready")
	for i := 0; ; i++ {
		content := crashContent(i)
		if err := put(s, fileEntry(fmt.Sprintf("f%d", i%8), content), content); err != nil {
			return err
		}
	}
}

func TestKilledWhileWriting(t *testing.T) {
	dir := t.TempDir()
	for round := range 4 {
		cmd := child("write until killed", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("ready"))); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Duration(20+17*round) * time.Millisecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // killed
		left := 0
		for _, spec := range treetest.ListTree(t, dir) {
			name, content, _ := strings.Cut(spec, "=")
			switch {
			case fileset.IsTemp([]byte(name)):
				left++
			case len(name) != 2 || content != crashContent(int(name[1]-'0')):
				t.Errorf("round %d: %s has %d bytes and is not whole", round, name, len(content))
			}
		}
		s := sinkInto(t, dir, Options{})
		s.sweep(s.base)
		still := slices.DeleteFunc(treetest.ListTree(t, dir), func(spec string) bool {
			name, _, _ := strings.Cut(spec, "=")
			return !fileset.IsTemp([]byte(name))
		})
		if left == 0 || len(still) > 0 {
			t.Errorf("round %d: %d leftovers, %d of them not removed", round, left, len(still))
		}
	}
}

func publishSome(dir string) error {
	s, err := childSink(dir)
	if err != nil {
		return err
	}
	s.deviceOf(s.base).flushesEarly = false // wherever TMPDIR is
	if err := put(s, fileEntry("one", "1"), "1"); err != nil {
		return err
	}
	if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "d", Mode: 0o755}, nil); err != nil {
		return err
	}
	batch := func(prefix string) error {
		var temps []*Temp
		for i := range 2 {
			temp, err := begin(s, fileEntry(fmt.Sprintf("%s%d", prefix, i), "x"), "x")
			if err != nil {
				return err
			}
			temps = append(temps, temp)
		}
		return errors.Join(s.Publish(temps)...)
	}
	if err := errors.Join(batch("d/a"), batch("d/b")); err != nil {
		return err
	}
	if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: "link", Target: "x"}, nil); err != nil {
		return err
	}
	if err := put(s, fileEntry("d/one", "1"), "1"); err != nil {
		return err
	}
	if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: "empty", Mode: 0o755}, nil); err != nil {
		return err
	}
	return errors.Join(s.FinishDirs(), s.Close())
}

// TestPublishOrder looks at the system calls themselves: the order in which
// things reach the disk cannot be seen otherwise without cutting the power.
func TestPublishOrder(t *testing.T) {
	strace, err := exec.LookPath("strace")
	if err != nil {
		t.Skip("strace is not installed")
	}
	dir := t.TempDir()
	log := filepath.Join(t.TempDir(), "log")
	cmd := child("publish", dir, strace, "-f", "-qq", "-y", "-o", log, "-e", "trace=fsync,syncfs,renameat,renameat2,flock,close")
	if err := exec.Command(strace, "-qq", "-o", os.DevNull, "true").Run(); err != nil {
		t.Skipf("strace may not trace here: %v", err)
	}
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	call := regexp.MustCompile(`(fsync|syncfs|renameat2?|close)\(\d+<` + regexp.QuoteMeta(dir) + `([^>]*)>(?:, "[^"]*", \d+<[^>]*>, "([^"]*)")?`)
	temp := regexp.MustCompile(`\.gdrcp-[0-9a-f]{32}`)
	var got []string
	for line := range bytes.Lines(text) {
		m := call.FindSubmatch(line)
		if m == nil {
			continue
		}
		isTemp := temp.Match(m[2])
		switch name := string(m[1]); {
		case name == "close" && !isTemp && !bytes.Contains(m[2], []byte("/one")) && !bytes.Contains(m[2], []byte("/d/")):
		case name == "close":
			got = append(got, "close file")
		case strings.HasPrefix(name, "rename"):
			got = append(got, "rename "+string(m[3]))
		default:
			got = append(got, name+" "+temp.ReplaceAllString(string(m[2]), "TEMP"))
		}
	}
	want := []string{
		"fsync /TEMP", "rename one", "fsync ", "close file",
		// Always by the directory that was opened first. The directory d is new:
		// the first syncfs brings it to the disk too.
		"syncfs ", "rename a0", "rename a1", "fsync /d", "close file", "close file",
		"syncfs ", "rename b0", "rename b1", "fsync /d", "close file", "close file",
		// A link was made since: fsync of d would not bring its name to the disk.
		"fsync /d/TEMP", "rename one", "syncfs ", "close file",
		"syncfs ", // the empty directory
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q\n%s", got, want, text)
	}
}

func TestPublishBatch(t *testing.T) {
	treetest.NoLeaks(t)
	for _, noFsync := range []bool{false, true} {
		dir := t.TempDir()
		s := sinkInto(t, dir, Options{NoFsync: noFsync})
		var temps []*Temp
		var want []string
		for i := range 12 { // more directories than are synced one by one
			d := fmt.Sprintf("d%02d", i)
			if err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: d, Mode: 0o755}, nil); err != nil {
				t.Fatal(err)
			}
			temp, err := begin(s, fileEntry(d+"/f", d), d)
			if err != nil {
				t.Fatal(err)
			}
			temps = append(temps, temp)
			want = append(want, d+"/", d+"/f="+d)
		}
		treetest.MakeTree(t, dir, "d05/f/") // one cannot be published
		want[11] = "d05/f/"
		for i, err := range s.Publish(temps) {
			if (err != nil) != (i == 5) {
				t.Errorf("%d: %v", i, err)
			}
		}
		treetest.WantTree(t, dir, want...)
		if len(s.Publish(nil)) != 0 {
			t.Error("results for nothing")
		}
		s.Close()
	}
}

func TestTwoSinksAtOnce(t *testing.T) {
	treetest.NoLeaks(t)
	dir := treetest.FastDir(t)
	const names, rounds = 10, 30
	var wg sync.WaitGroup
	for w := range 3 {
		s := sinkInto(t, dir, Options{})
		content := strings.Repeat(string(rune('a'+w)), 5000)
		wg.Go(func() {
			defer s.Close()
			for i := range names * rounds {
				if err := put(s, fileEntry(fmt.Sprintf("f%d", i%names), content), content); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() { // a cleaner takes nothing that is in use
			for range rounds {
				c, err := childSink(dir)
				if err != nil {
					t.Error(err)
					return
				}
				c.sweep(c.base)
				c.Close()
			}
		})
	}
	wg.Wait()
	specs := treetest.ListTree(t, dir)
	if len(specs) != names {
		t.Errorf("%d files", len(specs))
	}
	for _, spec := range specs {
		name, content, _ := strings.Cut(spec, "=")
		if len(content) != 5000 || strings.Trim(content, content[:1]) != "" {
			t.Errorf("%s: mixed or cut, %d bytes", name, len(content))
		}
	}
}

// TestWhatAppearsIsKept: what comes to be in an entry's place after it was looked
// at stays, where the sink is to keep it.
func TestWhatAppearsIsKept(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := openSink(t, Options{Dest: dir})
	s.KeepExisting()
	s.AllowDelete(DeleteRules{Most: -1, Told: func(r Removal) { t.Errorf("told %+v", r) }})
	if err := s.Place(&topDir, "."); err != nil {
		t.Fatal(err)
	}
	var temps []*Temp
	names := []string{"dir", "file", "free", "link"}
	for _, name := range names {
		temp, err := begin(s, fileEntry(name, "new"), "new")
		if err != nil {
			t.Fatal(err)
		}
		temps = append(temps, temp)
	}
	treetest.MakeTree(t, dir, "dir/", "dir/x=", "file=mine", "link>file")
	for i, err := range s.Publish(temps) {
		if want := names[i] != "free"; errors.Is(err, ErrKept) != want || (err != nil) != want {
			t.Errorf("%s: %v", names[i], err)
		}
	}
	for _, name := range []string{"dir", "file", "link"} {
		if err := s.Symlink(&manifest.Entry{Type: manifest.Symlink, Path: name, Target: "x"}, nil); !errors.Is(err, ErrKept) {
			t.Errorf("link %s: %v", name, err)
		}
		err := s.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: name, Mode: 0o755}, nil)
		if name == "dir" && err != nil || name != "dir" && !errors.Is(err, ErrKept) {
			t.Errorf("directory %s: %v", name, err)
		}
	}
	s.Close()
	treetest.WantTree(t, dir, "dir/", "dir/x=", "file=mine", "link>file", "free=new")
}

// TestKeepIf: what is in a file's place is looked at when the file gets its name.
func TestKeepIf(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	s := sinkInto(t, dir, Options{})
	for _, name := range []string{"short", "longer", "none"} {
		temp, err := begin(s, fileEntry(name, "new"), "new")
		if err != nil {
			t.Fatal(err)
		}
		temp.KeepIf(func(now Standing) bool { return now.Type == manifest.File && now.Size > 5 })
		if name != "none" {
			treetest.MakeTree(t, dir, name+"="+name)
		}
		if err := s.Publish([]*Temp{temp})[0]; errors.Is(err, ErrKept) != (name == "longer") || (err != nil) != (name == "longer") {
			t.Errorf("%s: %v", name, err)
		}
	}
	treetest.WantTree(t, dir, "short=new", "longer=longer", "none=new")
}

// What brings a file and its name to the disk is told, as long as it took. Without fsync
// nothing is told.
func TestSyncsAreTimed(t *testing.T) {
	const each = 30 * time.Millisecond
	for _, noFsync := range []bool{false, true} {
		var told time.Duration
		s := sinkInto(t, t.TempDir(), Options{NoFsync: noFsync, Synced: func(took time.Duration) { told += took }})
		s.calls.fsync = func(int) error {
			time.Sleep(each)
			return nil
		}
		s.calls.syncfs = s.calls.fsync
		f := newPartialFile("f", 4)
		temp, err := s.CreatePartial(f.entry, nil, &f.partial)
		if err != nil {
			t.Fatal(err)
		}
		f.write(t, temp, 0, 1)
		if err := temp.Mark(); err != nil {
			t.Fatal(err)
		}
		f.write(t, temp, 2, 3)
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		marked := told
		if err := s.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		published := told
		if err := s.FinishDirs(); err != nil {
			t.Fatal(err)
		}
		if noFsync {
			if told != 0 {
				t.Errorf("without fsync %v", told)
			}
			continue
		}
		if marked < each || published-marked < 2*each || told == published {
			t.Errorf("a mark took %v, the publication %v, the rest %v", marked, published-marked, told-published)
		}
	}
}
