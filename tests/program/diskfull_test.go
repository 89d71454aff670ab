package program

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// smallDisk mounts a file system of that many bytes, for the test.
func smallDisk(t *testing.T, dir, size string) {
	t.Helper()
	asRoot(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size); err != nil {
		t.Skipf("mount a small tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// onSmallDisk returns sides whose sink is a small disk.
func onSmallDisk(t *testing.T, d direction, size string) *sides {
	t.Helper()
	s := &sides{here: t.TempDir(), there: t.TempDir()}
	_, to := s.ends(d)
	smallDisk(t, to, size)
	s.server = serve(t, tcpLink(), s.there)
	t.Cleanup(func() { // before the disk is unmounted
		_ = s.cmd.Process.Kill()
		<-s.ended
	})
	return s
}

// TestDiskTooSmall: a copy that cannot fit is refused before the first byte.
func TestDiskTooSmall(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := onSmallDisk(t, d, "8m")
		from, to := s.ends(d)
		makeFile(t, from+"/big", 16*mib, 1)
		makeTree(t, from+"/tree", 600, 1)
		write(t, to+"/kept", "of old")
		for _, name := range []string{"big", "tree"} {
			p := s.copy(t, append(s.operands(d, s.via(), name, "copy"), "-rl")...)
			p.wantFailure(1, `(?i)no space left|needed`)
			if left := someFiles(to, 100); len(left) != 1 || len(temps(to)) > 0 {
				t.Errorf("%s: before the first byte of what cannot fit there are %q %q", name, left, temps(to))
			}
		}
	})
}

// TestSparseFitsSmallDisk: holes need no space.
func TestSparseFitsSmallDisk(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := onSmallDisk(t, d, "8m")
		from, to := s.ends(d)
		makeSparse(t, from+"/sparse", 64*mib, 2*mib)
		s.copy(t, s.operands(d, s.via(), "sparse", "copy")...).wantCode(0)
		if why := differAt(from+"/sparse", to+"/copy"); why != "" {
			t.Errorf("the copy %s", why)
		}
	})
}

// TestDiskFills: something else takes the free space during a copy.
func TestDiskFills(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := onSmallDisk(t, d, "48m")
		from, to := s.ends(d)
		for i := range uint64(20) {
			makeFile(t, filepath.Join(from, "tree", "f"+string(rune('a'+i))), 2*mib, i)
		}
		x := holdsData(d, 8*mib).start(t, s.addr())
		p := start(t, how{}, append(s.operands(d, x.addr(), "tree", "copy"), "-rl", "--transport", "tcp", "--retries", "0")...)
		awaitPartial(t, to, p)
		filler, err := os.Create(to + "/filler")
		must(t, err)
		for block := make([]byte, 64<<10); ; {
			if _, err := filler.Write(block); err != nil {
				break
			}
		}
		x.release()
		p.wantFailure(1, `(?i)no space left`)
		noneWrong(t, from+"/tree", to+"/copy")
		must(t, filler.Close())
		must(t, os.Remove(to+"/filler"))
		must(t, os.RemoveAll(to+"/copy"))
		s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-rl")...).wantCode(0)
		sameTree(t, from+"/tree", to+"/copy", false)
		noTemps(t, to)
	})
}

// TestDisksBelowDestination: files for a file system mounted below the destination need
// space on that file system only.
func TestDisksBelowDestination(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		for name, c := range map[string]struct {
			top, below string // sizes
			fits       bool
		}{
			"large below small": {"1m", "32m", true},
			"small below large": {"32m", "1m", false},
		} {
			t.Run(name, func(t *testing.T) {
				s := onSmallDisk(t, d, c.top)
				from, to := s.ends(d)
				makeFile(t, from+"/tree/disk/new/big", 8*mib, 1)
				write(t, from+"/tree/small", "small")
				must(t, os.MkdirAll(to+"/tree/disk", 0o755))
				smallDisk(t, to+"/tree/disk", c.below)
				p := s.copy(t, append(s.operands(d, s.via(), "tree", ""), "-rl")...)
				if c.fits {
					p.wantCode(0)
					sameTree(t, from+"/tree", to+"/tree", false)
					return
				}
				p.wantFailure(1, `no space left at the destination, in "disk/new": 8388608 bytes needed, \d+ free`)
				if _, err := os.Lstat(to + "/tree/small"); err == nil || len(temps(to)) > 0 {
					t.Errorf("before the first byte of what cannot fit there are small and %q: %v", temps(to), err)
				}
			})
		}
	})
}
