package tcp

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
)

// mapped returns anonymous memory that has been touched, so that no page fault
// is measured.
func mapped(tb testing.TB, n int) []byte {
	tb.Helper()
	mem, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := unix.Munmap(mem); err != nil {
			tb.Error(err)
		}
	})
	for i := range mem {
		mem[i] = byte(i)
	}
	return mem
}

// end is one end of a connection, with a registered region.
type end struct {
	rail rdma.Rail
	conn rdma.Conn
	mr   rdma.MR
	mem  []byte
}

// connect makes two rails with memory and a connection between them.
func connect(tb testing.TB, cfg rdma.RailConfig, memBytes int) (dialler, acceptor end) {
	tb.Helper()
	l := listen(tb)
	dialler, acceptor = openEnd(tb, cfg, memBytes), openEnd(tb, cfg, memBytes)
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(context.Background())
		if err == nil {
			acceptor.conn, err = req.Accept(context.Background(), acceptor.rail)
		}
		accepted <- err
	}()
	var err error
	if dialler.conn, err = dialler.rail.Dial(context.Background(), l.Addr(), nil); err != nil {
		tb.Fatal(err)
	}
	if err := <-accepted; err != nil {
		tb.Fatal(err)
	}
	return dialler, acceptor
}

func listen(tb testing.TB) rdma.Listener {
	tb.Helper()
	l, err := New().Listen(netip.MustParseAddrPort("127.0.0.1:0"), rdma.Wire{})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { l.Close() })
	return l
}

func openEnd(tb testing.TB, cfg rdma.RailConfig, memBytes int) end {
	tb.Helper()
	mem := mapped(tb, memBytes)
	rail, err := New().Open("tcp", cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { rail.Close() })
	mr, err := rail.Register(rdma.HostRegion(mem), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	if err != nil {
		tb.Fatal(err)
	}
	return end{rail: rail, mr: mr, mem: mem}
}

// benchConfig has room for every benchmark.
func benchConfig() rdma.RailConfig {
	return rdma.RailConfig{Conns: 4, SendDepth: 64, RecvDepth: 64, MsgBytes: 4096, WriteBytes: 64 << 20}
}

// drain counts received messages and immediates, and returns a credit message
// for each, until the rail is closed.
func drain(e end, ended chan<- struct{}) {
	defer close(ended)
	out := make([]rdma.Completion, 64)
	credit := []rdma.WR{{Op: rdma.OpSend, Quiet: true, Msg: []byte{1}}}
	for {
		n, err := e.rail.Wait(context.Background(), out)
		if err != nil {
			return
		}
		for i := range out[:n] {
			switch out[i].Kind {
			case rdma.Immediate, rdma.Message:
				for {
					if _, err := e.conn.Post(credit); err == nil {
						break
					}
				}
			case rdma.Closed:
				return
			}
		}
	}
}

// benchmarkPost keeps a window of work requests in flight, each of which is
// returned by its credit. The slot that was freed last is used first.
func benchmarkPost(b *testing.B, op rdma.Op, n, window int) {
	tx, rx := connect(b, benchConfig(), n*window)
	ended := make(chan struct{})
	go drain(rx, ended)

	wrs := make([]rdma.WR, 1)
	slots := make([]int, window)
	for i := range slots {
		slots[i] = i
	}
	out := make([]rdma.Completion, 64)
	b.SetBytes(int64(n))
	b.ReportAllocs()
	b.ResetTimer()
	for posted, credited := 0, 0; credited < b.N; {
		for posted < b.N && len(slots) > 0 {
			slot := slots[len(slots)-1]
			slots = slots[:len(slots)-1]
			wrs[0] = rdma.WR{Op: op, Quiet: op == rdma.OpSend, ID: uint64(slot), Imm: uint32(slot)}
			if op == rdma.OpSend {
				wrs[0].Msg = tx.mem[slot*n : (slot+1)*n]
			} else {
				wrs[0].Local, wrs[0].Offset, wrs[0].Len = tx.mr, slot*n, n
				wrs[0].RKey, wrs[0].RemoteAddr = rx.mr.RKey(), rx.mr.Addr()+uint64(slot*n)
			}
			for {
				if _, err := tx.conn.Post(wrs); err == nil {
					break
				}
			}
			posted++
		}
		got, err := tx.rail.Wait(context.Background(), out)
		if err != nil {
			b.Fatal(err)
		}
		for i := range out[:got] {
			switch {
			case out[i].Kind == rdma.Closed:
				b.Fatal(out[i].Err)
			case out[i].Kind == rdma.Message:
				credited++
				if op == rdma.OpSend {
					slots = append(slots, 0)
				}
			case out[i].Kind == rdma.Done:
				slots = append(slots, int(out[i].ID))
			}
		}
	}
	b.StopTimer()
	tx.conn.Close()
	<-ended
}

func BenchmarkWriteImm(b *testing.B) {
	for _, kib := range []int{4, 64, 256, 1024, 4096} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) {
			benchmarkPost(b, rdma.OpWriteImm, kib<<10, 16)
		})
	}
}

func BenchmarkSend(b *testing.B) {
	for _, n := range []int{64, 4096} {
		b.Run(fmt.Sprintf("%dB", n), func(b *testing.B) { benchmarkPost(b, rdma.OpSend, n, 16) })
	}
}

// BenchmarkBareLoop is the baseline for BenchmarkWriteImm: one goroutine writes a header
// and a chunk from one of 16 slots with writev, the other reads it into one of 16.
func BenchmarkBareLoop(b *testing.B) {
	for _, kib := range []int{64, 1024} {
		b.Run(fmt.Sprintf("%dKiB", kib), func(b *testing.B) { benchmarkBare(b, kib<<10, 16) })
	}
}

func benchmarkBare(b *testing.B, n, window int) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	src, dst := mapped(b, n*window), mapped(b, n*window)
	received := make(chan error, 1)
	go func() {
		sock, err := l.Accept()
		if err != nil {
			received <- err
			return
		}
		defer sock.Close()
		header := make([]byte, 32)
		for i := range b.N {
			if _, err = io.ReadFull(sock, header); err != nil {
				break
			}
			slot := i % window
			if _, err = io.ReadFull(sock, dst[slot*n:(slot+1)*n]); err != nil {
				break
			}
		}
		received <- err
	}()
	sock, err := net.DialTimeout("tcp", l.Addr().String(), time.Second)
	if err != nil {
		b.Fatal(err)
	}
	defer sock.Close()
	header := make([]byte, 32)
	b.SetBytes(int64(n))
	b.ReportAllocs()
	b.ResetTimer()
	for i := range b.N {
		slot := i % window
		buffers := net.Buffers{header, src[slot*n : (slot+1)*n]}
		if _, err := buffers.WriteTo(sock); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-received; err != nil {
		b.Fatal(err)
	}
}

// TestNoAllocations: posting, sending, receiving and waiting allocate nothing.
func TestNoAllocations(t *testing.T) {
	const n = 1 << 20
	for name, op := range map[string]rdma.Op{"WriteImm": rdma.OpWriteImm, "Send": rdma.OpSend} {
		t.Run(name, func(t *testing.T) {
			tx, rx := connect(t, benchConfig(), n)
			ended := make(chan struct{})
			go drain(rx, ended)
			wrs := []rdma.WR{{Op: op, Quiet: true, Msg: tx.mem[:64], Local: tx.mr, Len: n,
				RKey: rx.mr.RKey(), RemoteAddr: rx.mr.Addr()}}
			out := make([]rdma.Completion, 8)
			roundTrip := func() {
				for range 10 {
					if _, err := tx.conn.Post(wrs); err != nil {
						t.Fatal(err)
					}
					if _, err := tx.rail.Wait(context.Background(), out); err != nil || out[0].Kind != rdma.Message {
						t.Fatalf("completion of kind %d: %v", out[0].Kind, err)
					}
				}
			}
			roundTrip() // allocates the buffers
			if allocs := testing.AllocsPerRun(50, roundTrip); allocs > 0 {
				t.Errorf("%.0f allocations in 10 round trips", allocs)
			}
			tx.conn.Close()
			<-ended
		})
	}
}
