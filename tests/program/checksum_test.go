package program

import (
	"math/rand/v2"
	"os"
	"testing"

	"gdrcp/tests/launch"
)

// spoilAt changes bytes of a file and preserves its modification time.
func spoilAt(t *testing.T, path string, offsets ...int64) {
	t.Helper()
	st, err := os.Stat(path)
	must(t, err)
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	for _, at := range offsets {
		var b [1]byte
		_, err := f.ReadAt(b[:], at)
		must(t, err)
		_, err = f.WriteAt([]byte{b[0] ^ 1}, at)
		must(t, err)
	}
	must(t, f.Close())
	must(t, os.Chtimes(path, st.ModTime(), st.ModTime()))
}

// TestChecksum: files that pass the quick check are compared, only differing data is
// sent, and identical files are kept. --json reports that.
func TestChecksum(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			s := newSides(t, l)
			from, to := s.ends(d)
			must(t, os.MkdirAll(from+"/src", 0o755))
			makeFile(t, from+"/src/same", 5*mib+1, 1)
			makeFile(t, from+"/src/spoilt", 20*mib+1, 2)
			args := append(s.operands(d, s.via(), "src/.", "dst"), "-a", "--json")
			s.copy(t, args...).wantCode(0)
			spoilAt(t, to+"/dst/spoilt", 3*mib+7, 20*mib)
			was, spoilt := inodeOf(t, to+"/dst/same"), inodeOf(t, to+"/dst/spoilt")
			if kept := s.copy(t, args...).wantCode(0).event("summary")["kept"]; kept != 2.0 {
				t.Errorf("the quick check kept %v files", kept)
			}
			sum := s.copy(t, append(args, "-c")...).wantCode(0).event("summary")
			for name, want := range map[string]float64{
				"files": 1, "unchanged": 1, "kept": 0, "bytes": 25*mib + 2, "sent_bytes": mib + 1, "same_bytes": 24*mib + 1, "compared_bytes": 25*mib + 2, "skipped_bytes": 0, "repairs": 0,
			} {
				if sum[name] != want {
					t.Errorf("%s: %v, and not %v", name, sum[name], want)
				}
			}
			if sum["verified"] != true || inodeOf(t, to+"/dst/same") != was || inodeOf(t, to+"/dst/spoilt") == spoilt {
				t.Errorf("verified: %v", sum["verified"])
			}
			for _, name := range []string{"same", "spoilt"} {
				if why := differAt(from+"/src/"+name, to+"/dst/"+name); why != "" {
					t.Errorf("%s %s", name, why)
				}
			}
			noTemps(t, to)
			s.stop()
		})
	})
}

// TestChecksumKilled: the old file remains intact until the new one has its name,
// whichever end dies, and the same command transfers the differences.
func TestChecksumKilled(t *testing.T) {
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		bytes, old := 2*slowBytes(s.link), t.TempDir()+"/old"
		makeFile(t, from+"/big", bytes, 1)
		makeFile(t, to+"/big", bytes, 2)
		makeFile(t, old, bytes, 2)
		was := inodeOf(t, to+"/big")
		client := start(t, s.as, append(s.copyArgs(), append(s.operands(d, s.slowDown(t), "big", "big"), "-c")...)...)
		awaitBytes(to, 1+rand.Int64N(bytes/2), client)
		_ = client.cmd.Process.Kill()
		client.wait(silence() + launch.Slow(lastWord))
		if d.push {
			awaitUnlocked(t, to)
		}
		if why := differAt(old, to+"/big"); why != "" || inodeOf(t, to+"/big") != was {
			t.Errorf("the old file %s", why)
		}
		s.copy(t, append(s.operands(d, s.via(), "big", "big"), "-c")...).wantCode(0)
		if why := differAt(from+"/big", to+"/big"); why != "" {
			t.Errorf("the copy %s", why)
		}
		noTemps(t, to)
	})
}
