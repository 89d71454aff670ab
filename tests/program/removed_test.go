package program

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// TestDestinationGoes removes, renames or replaces the destination directory during a
// copy: the copy fails, no partial file has a final name, and the same command repairs
// it.
func TestDestinationGoes(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	for name, strike := range map[string]func(t *testing.T, dir string){
		"removed": func(t *testing.T, dir string) {
			err := os.RemoveAll(dir)
			for limit := time.Now().Add(launch.Slow(lastWord)); errors.Is(err, syscall.ENOTEMPTY) && time.Now().Before(limit); {
				err = os.RemoveAll(dir) // the copy creates more
			}
			must(t, err)
		},
		"renamed": func(t *testing.T, dir string) { must(t, os.Rename(dir, dir+".renamed")) },
		"replaced": func(t *testing.T, dir string) {
			must(t, os.Rename(dir, dir+".renamed"))
			must(t, os.Mkdir(dir, 0o755))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
				makeTree(t, from+"/tree", 60, 1)
				makeFile(t, from+"/tree/a/b/big", 10*mib, 2)
				makeFile(t, from+"/tree/zzz", mib, 3)
				x := holdsData(d, 4*mib).start(t, s.addr())
				p := start(t, how{}, append(s.operands(d, x.addr(), "tree", "copy"), "-rl", "--transport", "tcp")...)
				awaitPartial(t, to, p)
				strike(t, to+"/copy")
				x.release()
				code := p.wait(launch.Slow(patience))
				if code != 1 && code != 3 {
					t.Errorf("exit code %d: %s", code, p)
				}
				p.checkText(p.stderr.String())
				if strings.Contains(p.stderr.String(), `\n`) {
					t.Errorf("a file that failed has more than one error: %s", p)
				}
				noneWrong(t, from+"/tree", to+"/copy")
				noneWrong(t, from+"/tree", to+"/copy.renamed")
				must(t, os.RemoveAll(to+"/copy.renamed"))
				must(t, os.RemoveAll(to+"/copy"))
				s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-rl")...).wantCode(0)
				sameTree(t, from+"/tree", to+"/copy", false)
				noTemps(t, to)
				s.stop()
			})
		})
	}
}

// TestDirectoryBelowGoes: if a directory below the top is renamed or replaced while it
// is filled, that is reported, even if the copy keeps no metadata of directories.
func TestDirectoryBelowGoes(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	below := func(t *testing.T, from, to string, slow func() *process, hurry func()) {
		makeTree(t, from+"/tree", 20, 1)
		makeFile(t, from+"/tree/a/b/big", 10*mib, 2)
		makeFile(t, from+"/tree/zzz", mib, 3)
		p := slow()
		awaitPartial(t, to, p)
		must(t, os.Rename(to+"/copy/a/b", to+"/elsewhere"))
		must(t, os.Mkdir(to+"/copy/a/b", 0o755))
		hurry()
		if code := p.wait(launch.Slow(patience)); code != 3 {
			t.Errorf("exit code %d: %s", code, p)
		}
		p.wantOne(strings.Split(p.stderr.String(), "\n"), `look up "a/b": the directory that was filled does not have this name any more`)
	}
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		x := holdsData(d, 4*mib).start(t, s.addr())
		below(t, from, to, func() *process {
			return start(t, how{}, append(s.operands(d, x.addr(), "tree", "copy"), "-rl", "--transport", "tcp")...)
		}, x.release)
		s.stop()
	})
	t.Run("local", func(t *testing.T) {
		from, to := t.TempDir(), t.TempDir()
		below(t, from, to, func() *process {
			return start(t, how{}, "-rl", "--bwlimit", "4M", from+"/tree", to+"/copy")
		}, func() {})
	})
}
