package program

import (
	wire "encoding/binary"
	"fmt"
	"hash/crc32"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
	"gdrcp/xfer"
)

// preface returns what opens a connection of the TCP provider, with a preamble as its
// private data: docs/design/protocol.md defines both.
func preface(preamble []byte) []byte {
	b := make([]byte, 64)
	copy(b, "gdrcp\r\n\x00")
	wire.LittleEndian.PutUint16(b[8:], 1)
	wire.LittleEndian.PutUint16(b[10:], uint16(len(preamble)))
	copy(b[12:60], preamble)
	wire.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

// preamble returns a request for a door or, with kind 1, for a queue pair of a session.
func preamble(kind byte) []byte {
	b := make([]byte, 48)
	copy(b, "GDCP")
	wire.LittleEndian.PutUint16(b[4:], xfer.ProtocolVersion)
	b[6], b[9], b[10] = kind, 1, 1
	wire.LittleEndian.PutUint32(b[12:], 1024)
	_, _ = noise(uint64(kind)).Read(b[16:]) // noise never fails
	return b
}

// send returns a frame with a message.
func send(msg []byte) []byte {
	b := make([]byte, 32, 32+len(msg))
	b[0] = 1
	wire.LittleEndian.PutUint32(b[4:], uint32(len(msg)))
	return append(b, msg...)
}

// strangersWords returns what clients without a key may send before they fall silent.
func strangersWords(t *testing.T) [][]byte {
	t.Helper()
	door := preface(preamble(0))
	key, err := trust.ReadKeyFile(keyFiles[0])
	must(t, err)
	// A stranger without a key may replay a recording.
	_, recorded, err := trust.Open(key, preamble(0))
	must(t, err)
	guess := append([]byte{4}, "test"...)
	guess = append(guess, garbage(48)...)
	return [][]byte{
		nil,
		[]byte(garbage(200)),
		door[:30],
		door,
		append(append([]byte{}, door...), send(guess)...),
		append(append([]byte{}, door...), send(guess[:20])...),
		append(append([]byte{}, door...), send(recorded)...),
		append(append([]byte{}, door...), send(recorded)[:40]...),
		preface(preamble(1)),
		preface(preamble(9)),
		preface([]byte("GDCP")),
	}
}

// crowd holds very many connections to a server open and replaces them continuously.
type crowd struct {
	made, held atomic.Int64 // held grows to the requested number and remains there
	stop       chan struct{}
	wg         sync.WaitGroup
}

// gather starts with n connections, and then makes perSecond.
func gather(t *testing.T, addr string, n, perSecond int) *crowd {
	t.Helper()
	c := &crowd{stop: make(chan struct{})}
	words := strangersWords(t)
	const callers = 8
	for caller := range callers {
		c.wg.Go(func() {
			mine := make([]net.Conn, n/callers)
			defer func() {
				for _, s := range mine {
					if s != nil {
						s.Close()
					}
				}
			}()
			for i := 0; ; i++ {
				at := i % len(mine)
				if i >= len(mine) {
					time.Sleep(time.Second * callers / time.Duration(perSecond))
					mine[at].Close()
					mine[at] = nil
				}
				select {
				case <-c.stop:
					return
				default:
				}
				s, err := net.Dial("tcp", addr)
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
					return
				}
				_, _ = s.Write(words[(i+caller)%len(words)]) // the server may have closed the connection
				mine[at] = s
				if i < len(mine) {
					c.held.Add(1)
				}
				c.made.Add(1)
			}
		})
	}
	t.Cleanup(c.disperse)
	return c
}

func (c *crowd) disperse() {
	select {
	case <-c.stop:
	default:
		close(c.stop)
	}
	c.wg.Wait()
}

// descriptors returns how many files a process has open.
func descriptors(t *testing.T, pid int) int {
	t.Helper()
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return len(names)
}

// TestCrowdOfStrangers connects ten thousand clients without a key to a server with few
// descriptors. A running copy completes, a client with the key is served, and the cost
// to the server is bounded and released.
func TestCrowdOfStrangers(t *testing.T) {
	onHost(t)
	n, perSecond := 10_000, 2000
	if testing.Short() {
		n = 2000
	}
	var limit syscall.Rlimit
	must(t, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Max < uint64(n+500) {
		t.Logf("this process may have %d descriptors (ulimit -Hn)", limit.Max)
		n = int(limit.Max) - 500
	}
	if limit.Max >= uint64(2*n) { // otherwise no descriptors are left for other tests
		rdmatest.BesideOthers(t)
	}
	s := &sides{here: t.TempDir(), there: t.TempDir()}
	s.server = serveAs(t, how{before: []string{"prlimit", "--nofile=1024:1024"}}, tcpLink(), s.there)
	pid := s.cmd.Process.Pid
	write(t, s.here+"/small", "content")
	makeTree(t, s.here+"/tree", 300, 3)
	makeFile(t, s.here+"/tree/large", 32*mib, 4)
	s.copy(t, s.here+"/small", s.url("first")).wantCode(0)
	quiet, quietBytes := descriptors(t, pid), peakOf(pid)

	// It continues until the crowd was seen, however long that takes here.
	slowly := (&proxy{bytesPerSecond: mib / 8}).start(t, s.addr())
	running := start(t, how{}, "--transport", "tcp", "-rl", s.here+"/tree", "rdma://"+slowly.addr()+"/tree")
	awaitPartial(t, s.there, running)
	c := gather(t, s.addr(), n, perSecond)
	most := 0
	for c.held.Load() < int64(n/8*8) && !t.Failed() {
		time.Sleep(5 * time.Millisecond)
		most = max(most, descriptors(t, pid))
	}
	for i := range 8 {
		p := s.copy(t, s.here+"/small", s.url(fmt.Sprintf("copy%d", i))).wantCode(0)
		most = max(most, descriptors(t, pid))
		t.Logf("a copy of one file took %v, among %d connections of %d", p.took.Round(time.Millisecond), c.held.Load(), c.made.Load())
	}
	select {
	case <-running.ended:
		t.Error("the copy ended before the crowd: it was not in its way")
	default:
	}
	slowly.hurry()
	running.wantCode(0)
	held := c.held.Load()
	c.disperse()
	sameTree(t, s.here+"/tree", s.there+"/tree", false)
	grew := peakOf(pid) - quietBytes
	t.Logf("%d connections at once, %d in all; the server had %d files open, and took %d MiB more", held, c.made.Load(), most, grew/mib)
	if most > 900 {
		t.Errorf("the server had %d files open", most)
	}
	if grew > 64*mib {
		t.Errorf("the crowd took %d MiB", grew/mib)
	}
	for end := time.Now().Add(launch.Slow(10 * time.Second)); descriptors(t, pid) > quiet; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after the crowd the server has %d files open, before %d", descriptors(t, pid), quiet)
		}
	}
	s.stop()
}

// TestTwoHundredCopies: that many clients (GDRCP_TEST_FULL=1) copy concurrently to and
// from one server, some of them to the same place. Clients beyond its limit wait.
func TestTwoHundredCopies(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		n := 40
		switch {
		case l.transport == "verbs" && !full():
			t.Skip("takes long over an emulated device: GDRCP_TEST_FULL=1 runs it")
		case l.transport == "verbs": // an emulated device
			n = 4
		case full():
			n = 200
		}
		s := newSides(t, l, "--max-sessions", "16", "--max-wait", "600")
		type one struct {
			*process
			from, to string
		}
		var all []one
		for i := range n {
			d, name, to, bytes := direction{push: i%2 == 0}, fmt.Sprintf("f%d", i), fmt.Sprintf("to%d", i), int64(100_000+10_000*i)
			if i%10 < 2 { // in both directions
				name, to, bytes = "same", "same-place", 2*mib
			}
			from, into := s.ends(d)
			makeFile(t, from+"/"+name, bytes, uint64(bytes))
			all = append(all, one{nil, from + "/" + name, into + "/" + to})
		}
		for i := range all {
			d := direction{push: i%2 == 0}
			from, into := s.ends(d)
			args := s.operands(d, s.via(), all[i].from[len(from)+1:], all[i].to[len(into)+1:])
			all[i].process = start(t, how{}, append(s.copyArgs(), args...)...)
		}
		for _, p := range all {
			if code := p.wait(launch.Slow(time.Duration(n) * time.Second)); code != 0 {
				t.Errorf("exit code %d: %s", code, p)
			}
			if why := differAt(p.from, p.to); why != "" {
				t.Errorf("%s: %s", p.to, why)
			}
		}
		noTemps(t, s.here)
		noTemps(t, s.there)
		s.stop()
	})
}
