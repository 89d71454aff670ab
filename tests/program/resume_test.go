package program

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
	"gdrcp/xfer"
)

// TestKilledAtAnyMoment kills either end, or both, at a moment that the seed picks, up
// to three times during one copy, and lets the same command resume: at most one ring is
// sent twice, and every byte is right. GDRCP_TEST_FULL=1 tries 40 moments.
func TestKilledAtAnyMoment(t *testing.T) {
	rdmatest.BesideOthers(t)
	everyLink(t, func(t *testing.T, l link) {
		moments := 4
		switch {
		case full():
			moments = 40
		case l.transport == "verbs":
			moments = 1
		}
		for n := range moments {
			t.Run(strconv.Itoa(n), func(t *testing.T) {
				if l.transport == "tcp" {
					t.Parallel()
				}
				h := fnv.New64a()
				fmt.Fprintf(h, "%s %s", os.Getenv(rdmatest.Seed), t.Name())
				killedAndResumed(t, l, rand.New(rand.NewPCG(h.Sum64(), uint64(n))))
			})
		}
	})
}

func killedAndResumed(t *testing.T, l link, rng *rand.Rand) {
	s, d := newSides(t, l), direction{push: rng.IntN(2) == 0}
	from, to := s.ends(d)
	bytes, ring := 2*slowBytes(l), int64(xfer.DefaultSlots*xfer.DefaultChunkBytes)
	makeFile(t, from+"/big", bytes, rng.Uint64())
	arrived := int64(0)
	for range 1 + rng.IntN(3) {
		at := arrived + 1 + rng.Int64N(bytes-arrived-1)
		client := start(t, s.as, append(s.copyArgs(), s.operands(d, s.slowDown(t), "big", "copy")...)...)
		arrived = max(arrived, awaitBytes(to, at, client)-ring)
		who := rng.IntN(3)
		t.Logf("%s: kill %s when %d of %d bytes are there", d, []string{"the client", "the server", "both"}[who], at, bytes)
		if who != 0 {
			s.signal(syscall.SIGKILL)
			<-s.ended
		}
		if who != 1 {
			_ = client.cmd.Process.Kill() // it may have ended already
		}
		client.wait(silence() + launch.Slow(lastWord))
		if who != 0 {
			s.server = serveAs(t, s.as, s.link, s.there)
		} else {
			awaitUnlocked(t, to)
		}
	}
	if _, err := os.Lstat(to + "/copy"); err == nil {
		arrived = 0 // it was killed too late
	}
	again := s.copy(t, append(s.operands(d, s.via(), "big", "copy"), "--json")...).wantCode(0)
	if resumed, ok := again.event("summary")["resumed_bytes"].(float64); !ok || int64(resumed) < arrived {
		t.Errorf("%v bytes counted, and at least %d had arrived: %s", resumed, arrived, again)
	}
	if why := differAt(from+"/big", to+"/copy"); why != "" {
		t.Errorf("the last copy %s", why)
	}
	noTemps(t, to)
	s.stop()
}

// awaitBytes waits until a partial file below dir has at least that many bytes or p has
// ended, and returns how many it has.
func awaitBytes(dir string, bytes int64, p *process) (has int64) {
	for ; ; time.Sleep(time.Millisecond) {
		for _, path := range temps(dir) {
			var st syscall.Stat_t
			if syscall.Stat(path, &st) == nil && st.Size > has {
				has = st.Size
			}
		}
		if has >= bytes {
			return has
		}
		select {
		case <-p.ended:
			return has
		default:
		}
	}
}

// awaitUnlocked waits until the server has ended the session of a client that has gone:
// until then the partial file is locked.
func awaitUnlocked(t *testing.T, dir string) {
	t.Helper()
	for deadline := time.Now().Add(silence() + launch.Slow(lastWord)); ; time.Sleep(10 * time.Millisecond) {
		locked := false
		for _, path := range temps(dir) {
			f, err := os.Open(path)
			if err != nil {
				continue // it already has its name
			}
			locked = locked || syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil
			_ = f.Close()
		}
		if !locked {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("the server still uses the partial file of a client that is gone")
		}
	}
}

// TestFullDiskGoesOn: a copy that ran out of disk space resumes when there is space
// again.
func TestFullDiskGoesOn(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		s := onSmallDisk(t, d, "56m")
		from, to := s.ends(d)
		makeFile(t, from+"/big", 40*mib, 1)
		x := holdsData(d, 24*mib).start(t, s.addr())
		p := start(t, how{}, append(s.operands(d, x.addr(), "big", "copy"), "--transport", "tcp", "--retries", "0")...)
		awaitBytes(to, 20*mib, p)
		filler, err := os.Create(to + "/filler")
		must(t, err)
		for block := make([]byte, 64<<10); ; {
			if _, err := filler.Write(block); err != nil {
				break
			}
		}
		x.release()
		p.wantFailure(1, `(?is)no space left.*\nhint: make room at the destination and (copy again|run the same command again)`)
		must(t, filler.Close())
		must(t, os.Remove(to+"/filler"))
		if d.push {
			awaitUnlocked(t, to)
		}
		again := s.copy(t, append(s.operands(d, s.via(), "big", "copy"), "--json")...).wantCode(0)
		if resumed, ok := again.event("summary")["resumed_bytes"].(float64); !ok || resumed < mib {
			t.Errorf("%v bytes counted: %s", resumed, again)
		}
		if why := differAt(from+"/big", to+"/copy"); why != "" {
			t.Errorf("the second copy %s", why)
		}
		noTemps(t, to)
	})
}

// TestSameFileTwiceAtOnce: two concurrent copies of one file to one place both succeed.
func TestSameFileTwiceAtOnce(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			s := newSides(t, l)
			from, to := s.ends(d)
			makeFile(t, from+"/big", slowBytes(l), 1)
			var both []*process
			for range 2 {
				both = append(both, start(t, how{}, append(l.copyArgs(), s.operands(d, s.via(), "big", "copy")...)...))
			}
			for _, p := range both {
				p.wantCode(0)
			}
			if why := differAt(from+"/big", to+"/copy"); why != "" {
				t.Errorf("the copy %s", why)
			}
			noTemps(t, to)
			s.stop()
		})
	})
}
