package program

import (
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// parallel is the number of copies that run concurrently.
const parallel = 6

// each runs a subtest for each of n, some in parallel.
func each(t *testing.T, n int, name func(int) string, test func(t *testing.T, i int)) {
	t.Run("all", func(t *testing.T) {
		turns := make(chan struct{}, parallel)
		for i := range n {
			t.Run(name(i), func(t *testing.T) {
				t.Parallel()
				turns <- struct{}{}
				defer func() { <-turns }()
				test(t, i)
			})
		}
	})
}

// spots returns byte counts after which to cut a direction that carries total bytes:
// all kinds of positions in the opening, some in the middle, and all kinds at the end.
func spots(total int64, some int) []int64 {
	r := rand.New(rand.NewPCG(uint64(total), 9))
	var all []int64
	for range some {
		all = append(all, r.Int64N(400), r.Int64N(total), total-1-r.Int64N(min(total, 400)))
	}
	return append(all, 0, 1, total-1)
}

// measure returns how many bytes pass in each direction of an undisturbed copy.
func (c *cutCase) measure(t *testing.T) [2]int64 {
	t.Helper()
	x := &proxy{}
	c.through(t, x, launch.Slow(patience)).wantCode(0)
	return [2]int64{x.total(toServer), x.total(toClient)}
}

// TestCut cuts the connection after some bytes, in either direction: for any number of
// bytes, the copy completes or fails, in bounded time.
func TestCut(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	some := 10
	if testing.Short() {
		some = 3
	}
	if full() {
		some = 60
	}
	bothWays(t, func(t *testing.T, d direction) {
		c := newCutCase(t, d)
		totals := c.measure(t)
		for _, to := range []towards{toServer, toClient} {
			at := spots(totals[to], some)
			each(t, len(at), func(i int) string { return fmt.Sprintf("%d after %d", to, at[i]) }, func(t *testing.T, i int) {
				c.through(t, &proxy{spoil: endAt(to, at[i])}, bounded())
			})
		}
		c.end(t)
	})
}

// endAt lets limit bytes pass in a direction.
func endAt(to towards, limit int64) func(towards, int64, []byte) int {
	return func(t towards, offset int64, b []byte) int {
		if t != to {
			return len(b)
		}
		return int(max(0, min(int64(len(b)), limit-offset)))
	}
}

// TestStall stops forwarding after some bytes and keeps the connection open: either end
// times out.
func TestStall(t *testing.T) {
	onHost(t)
	if testing.Short() {
		t.Skip("waits for time limits")
	}
	rdmatest.BesideOthers(t)
	bothWays(t, func(t *testing.T, d direction) {
		c := newCutCase(t, d)
		totals := c.measure(t)
		turns := [][2]int64{}
		for _, to := range []towards{toServer, toClient} {
			for _, share := range []int64{0, 30, 200, totals[to] / 2, totals[to] - 60} {
				turns = append(turns, [2]int64{int64(to), share})
			}
		}
		t.Run("all", func(t *testing.T) {
			for _, turn := range turns {
				t.Run(fmt.Sprintf("%d after %d", turn[0], turn[1]), func(t *testing.T) {
					t.Parallel()
					c.through(t, &proxy{spoil: endAt(towards(turn[0]), turn[1]), stall: true}, bounded()+launch.Slow(5*time.Second))
				})
			}
		})
		c.end(t)
	})
}

// TestFlip changes bytes in flight: a copy that succeeds is correct.
func TestFlip(t *testing.T) {
	onHost(t)
	runs := 24
	if testing.Short() {
		runs = 6
	}
	if full() {
		runs = 300
	}
	bothWays(t, func(t *testing.T, d direction) {
		c := newCutCase(t, d)
		data := toClient
		if d.push {
			data = toServer
		}
		totals := c.measure(t)
		t.Run("payload", func(t *testing.T) {
			p := c.through(t, &proxy{spoil: flipAt(data, map[int64]byte{totals[data] / 2: 1})}, 2*bounded(), "-v")
			p.wantCode(0)
			told := `(?m), 1 repair$`
			if d.push {
				told = `(?m), 1 repair, first byte after \d+ ms$`
			}
			if !regexp.MustCompile(told).MatchString(p.stderr.String()) {
				t.Errorf("a changed byte was not repaired: %s", p)
			}
		})
		each(t, runs, func(i int) string { return fmt.Sprint(i) }, func(t *testing.T, i int) {
			r := rand.New(rand.NewPCG(uint64(i), 2))
			to := data
			if i%4 == 3 {
				to = 1 - data
			}
			// Anywhere, which is mostly in payload, or in what opens or ends the
			// session.
			from, span := int64(0), totals[to]
			switch i % 3 {
			case 1:
				span = min(span, 2000)
			case 2:
				from = max(0, totals[to]-2000)
				span -= from
			}
			at := map[int64]byte{}
			for range 1 + i%3 {
				at[from+r.Int64N(span)] = byte(1 + r.IntN(255))
			}
			p := c.through(t, &proxy{spoil: flipAt(to, at)}, 2*bounded())
			t.Logf("exit code %d in %.1f s: %s", p.cmd.ProcessState.ExitCode(), p.took.Seconds(), p.stderr.String())
		})
		c.end(t)
	})
}

// TestFlipAlways changes a byte of every piece that is sent: repair must end.
func TestFlipAlways(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/big", 8*mib, 4)
		data := toClient
		if d.push {
			data = toServer
		}
		x := (&proxy{spoil: func(t towards, offset int64, b []byte) int {
			const every = 300_001
			if at := (offset+every-1)/every*every - offset; t == data && offset > 0 && at < int64(len(b)) {
				b[at] ^= 0x40
			}
			return len(b)
		}}).start(t, s.addr())
		p := start(t, how{}, append(s.operands(d, x.addr(), "big", "copy"), "--transport", "tcp", "--retries", "0")...)
		p.wait(2 * bounded())
		p.wantCode(4)
		p.wantLines(`big`)
		if _, err := os.Lstat(to + "/copy"); err == nil {
			t.Error("a file whose pieces never were right was published")
		}
		noTemps(t, to)
		s.stop()
	})
}

// flipAt changes the bytes at the given offsets of a direction.
func flipAt(to towards, at map[int64]byte) func(towards, int64, []byte) int {
	return func(t towards, offset int64, b []byte) int {
		for o, change := range at {
			if t == to && o >= offset && o < offset+int64(len(b)) {
				b[o-offset] ^= change
			}
		}
		return len(b)
	}
}
