package chunker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestCleanTakesOnlyItsOwn(t *testing.T) {
	noLeaks(t)
	dir := t.TempDir()
	hex := strings.Repeat("0123456789abcdef", 2)
	stays := []string{
		".gdrcp-" + hex[1:] + "=", ".gdrcp-" + hex + "0=", ".gdrcp-" + strings.ToUpper(hex) + "=",
		"gdrcp-" + hex + "=", ".gdrcp-" + hex[:31] + "g=", "x.gdrcp-" + hex + "=",
		".gdrcp-" + strings.Repeat("a", 32) + ">target", ".gdrcp-" + strings.Repeat("b", 32) + "/",
		"target=", ".gdrcp-" + strings.Repeat("c", 32) + "=locked", "sub/",
	}
	makeTree(t, dir, stays...)
	makeTree(t, dir, ".gdrcp-"+hex+"=left", "sub/.gdrcp-"+hex+"=left")
	if os.Geteuid() == 0 {
		foreign := ".gdrcp-" + strings.Repeat("d", 32) + "=foreign"
		makeTree(t, dir, foreign)
		stays = append(stays, foreign)
		if err := os.Chown(filepath.Join(dir, strings.TrimSuffix(foreign, "=foreign")), 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	locked, err := os.Open(filepath.Join(dir, ".gdrcp-"+strings.Repeat("c", 32)))
	if err != nil {
		t.Fatal(err)
	}
	defer locked.Close()
	if err := unix.Flock(int(locked.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}

	s := sinkInto(t, dir, SinkOptions{})
	if got := s.Clean(); !slices.Equal(got, []string{".gdrcp-" + hex}) {
		t.Errorf("removed %q", got)
	}
	wantTree(t, dir, slices.Concat(stays, []string{"sub/.gdrcp-" + hex + "=left"})...)
	// The directory below is cleaned when the first file goes there.
	if err := put(s, fileEntry("sub/f", ""), ""); err != nil {
		t.Fatal(err)
	}
	if got := s.Clean(); !slices.Equal(got, []string{"sub/.gdrcp-" + hex}) {
		t.Errorf("removed %q", got)
	}
	wantTree(t, dir, slices.Concat(stays, []string{"sub/f="})...)
	locked.Close()
	s.Close()
}
