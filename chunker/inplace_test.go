package chunker

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// TestInPlace: the file itself is written, by all its names, gets the size and metadata of
// its entry, and loses at once the bits that the entry does not have.
func TestInPlace(t *testing.T) {
	dir := t.TempDir()
	for _, old := range []string{"", "short", strings.Repeat("long ", 100)} {
		path := dir + "/f"
		err := errors.Join(os.RemoveAll(path), os.RemoveAll(dir+"/other"), os.WriteFile(path, []byte(old), 0o666), os.Chmod(path, 0o666), os.Link(path, dir+"/other"))
		if err != nil {
			t.Fatal(err)
		}
		s := sinkInto(t, dir, SinkOptions{Keep: Keep{Times: true, Modes: true}})
		noLeaks(t)
		e := fileEntry("f", "the new content")
		e.MtimeNs, e.Mode = 7_000_000_001, 0o604
		temp, err := s.OpenInPlace(e, nil)
		if err != nil || temp == nil || !temp.InPlace() || temp.IsHalfWritten() {
			t.Fatalf("%v, %v", temp, err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o604 {
			t.Errorf("%v, %v", st, err)
		}
		s.inPlaceWait.Store(0)
		if again, err := s.OpenInPlace(e, nil); !errors.Is(err, ErrInUse) {
			t.Errorf("opened twice: %v, %v", again, err)
		}
		if _, err := temp.WriteAt([]byte("the new content"), 0); err != nil || !temp.IsHalfWritten() {
			t.Fatal(err)
		}
		if err := temp.Finish(); err != nil {
			t.Fatal(err)
		}
		if err := s.Publish([]*Temp{temp})[0]; err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		for _, name := range []string{"f", "other"} {
			st, err := os.Stat(dir + "/" + name)
			if b, _ := os.ReadFile(dir + "/" + name); err != nil || string(b) != "the new content" || st.ModTime().UnixNano() != e.MtimeNs || st.Mode().Perm() != 0o604 {
				t.Errorf("%s: %q, %v, %v", name, b, st, err)
			}
		}
	}
}

// TestInPlaceDiscarded: what was being written stays where it is.
func TestInPlaceDiscarded(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "f=old content")
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	temp, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err == nil {
		_, err = temp.WriteAt([]byte("new"), 0)
	}
	if err = errors.Join(err, temp.Discard()); err != nil {
		t.Fatal(err)
	}
	wantTree(t, dir, "f=new content")
}

// TestInPlaceOfWhatIsNoFile: there is nothing to write into.
func TestInPlaceOfWhatIsNoFile(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "d/", "real=x", "link>real")
	if err := unix.Mkfifo(dir+"/fifo", 0o600); err != nil {
		t.Fatal(err)
	}
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	noLeaks(t)
	for _, name := range []string{"d", "link", "fifo", "none"} {
		if temp, err := s.OpenInPlace(&manifest.Entry{Type: manifest.File, Path: name, Mode: 0o644}, nil); temp != nil || err != nil {
			t.Errorf("%s: %v, %v", name, temp, err)
		}
	}
}

// TestInPlaceOfWhatWasReplaced: a file that has lost its name meanwhile is not reported as
// being there.
func TestInPlaceOfWhatWasReplaced(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "f=old")
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	noLeaks(t)
	temp, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err == nil {
		_, err = temp.WriteAt([]byte("new"), 0)
	}
	if err = errors.Join(err, temp.Finish(), os.Remove(dir+"/f"), os.WriteFile(dir+"/f", []byte("another"), 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish([]*Temp{temp})[0]; !errors.Is(err, ErrChanged) {
		t.Errorf("published: %v", err)
	}
	wantTree(t, dir, "f=another")
}

// TestInPlaceWaits: a copy that was cut off may still be ending.
func TestInPlaceWaits(t *testing.T) {
	dir := t.TempDir()
	makeTree(t, dir, "f=old")
	s := sinkInto(t, dir, SinkOptions{})
	defer s.Close()
	first, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		time.Sleep(3 * lockPause)
		_ = first.Discard()
	}()
	second, err := s.OpenInPlace(fileEntry("f", "new"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Discard(); err != nil {
		t.Error(err)
	}
}
