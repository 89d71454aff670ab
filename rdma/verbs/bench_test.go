//go:build linux && cgo

package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// link is two rails in this process and a connection between them.
type link struct {
	railA, railB rdma.Rail
	a, b         rdma.Conn
	memA, memB   []byte
	mrA, mrB     rdma.MR
}

func newLink(t testing.TB, p *Provider, g target, cfg rdma.RailConfig, memBytes int) *link {
	t.Helper()
	l := &link{memA: rdmatest.Map(t, memBytes), memB: rdmatest.Map(t, memBytes)}
	open := func(mem []byte) (rdma.Rail, rdma.MR) {
		r, err := p.Open(g.device, cfg)
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		t.Cleanup(func() {
			if err := r.Close(); err != nil {
				t.Errorf("close rail: %v", err)
			}
		})
		m, err := r.Register(rdma.HostRegion(mem), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
		if err != nil {
			t.Fatalf("register: %v", err)
		}
		return r, m
	}
	l.railA, l.mrA = open(l.memA)
	l.railB, l.mrB = open(l.memB)
	l.a, l.b = connect(t, p, g, l.railA, l.railB)
	return l
}

// connect dials from railA to railB.
func connect(t testing.TB, p *Provider, g target, railA, railB rdma.Rail) (a, b rdma.Conn) {
	t.Helper()
	ln, err := p.Listen(netip.AddrPortFrom(g.addr, 0), rdma.Wire{})
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	defer ln.Close()
	type result struct {
		c   rdma.Conn
		err error
	}
	accepted := make(chan result, 1)
	go func() {
		q, err := ln.Accept(context.Background())
		if err != nil {
			accepted <- result{nil, err}
			return
		}
		c, err := q.Accept(context.Background(), railB)
		accepted <- result{c, err}
	}()
	a, err = railA.Dial(context.Background(), ln.Addr(), []byte("hello"))
	if err != nil {
		t.Fatalf("dial: %v", err)
	}
	got := <-accepted
	if got.err != nil {
		t.Fatalf("accept: %v", got.err)
	}
	return a, got.c
}

// BenchmarkWriteImm moves chunks from memory to memory through a ring of slots,
// with one message that returns slots for every four chunks.
func BenchmarkWriteImm(b *testing.B) {
	for _, g := range targets(b) {
		for _, chunkBytes := range []int{256 << 10, 1 << 20, 4 << 20} {
			b.Run(fmt.Sprintf("%s/%dKiB", g.device, chunkBytes>>10), func(b *testing.B) {
				benchWriteImm(b, g, chunkBytes)
			})
		}
	}
}

func benchWriteImm(b *testing.B, g target, chunkBytes int) {
	const slots, batch = 16, 4
	cfg := rdma.RailConfig{Conns: 1, SendDepth: 2 * slots, RecvDepth: slots + 8, MsgBytes: 64, WriteBytes: chunkBytes}
	l := newLink(b, New(), g, cfg, slots*chunkBytes)
	sunk := make(chan error, 1)
	go func() { sunk <- sinkChunks(l, b.N, batch) }()
	b.SetBytes(int64(chunkBytes))
	b.ReportAllocs()
	b.ResetTimer()
	if err := sourceChunks(l, b.N, slots, batch, chunkBytes); err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	if err := <-sunk; err != nil {
		b.Fatal(err)
	}
}

// sourceChunks posts n chunks as slots become free.
func sourceChunks(l *link, n, slots, batch, chunkBytes int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := make([]rdma.Completion, 32)
	wrs := make([]rdma.WR, 0, slots)
	sent, done, credit := 0, 0, slots
	for done < n || credit < n {
		wrs = wrs[:0]
		for sent < n && sent < credit && sent < done+slots {
			at := sent % slots * chunkBytes
			wrs = append(wrs, rdma.WR{
				Op: rdma.OpWriteImm, Imm: uint32(sent), RKey: l.mrB.RKey(), RemoteAddr: l.mrB.Addr() + uint64(at),
				Local: l.mrA, Offset: at, Len: chunkBytes,
			})
			sent++
		}
		if len(wrs) > 0 {
			if k, err := l.a.Post(wrs); k != len(wrs) {
				return fmt.Errorf("post took %d of %d: %w", k, len(wrs), err)
			}
		}
		k, err := l.railA.Wait(ctx, out)
		if err != nil {
			return err
		}
		for i := range out[:k] {
			switch out[i].Kind {
			case rdma.Done:
				done++
			case rdma.Message:
				credit += batch
			case rdma.Closed:
				return out[i].Err
			}
		}
	}
	return nil
}

// sinkChunks returns slots until n chunks have arrived.
func sinkChunks(l *link, n, batch int) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	out := make([]rdma.Completion, 32)
	credit := []rdma.WR{{Op: rdma.OpSend, Quiet: true, Msg: make([]byte, 8)}}
	for got := 0; got < n; {
		k, err := l.railB.Wait(ctx, out)
		if err != nil {
			return err
		}
		for i := range out[:k] {
			if out[i].Kind == rdma.Closed {
				return out[i].Err
			}
			if out[i].Kind != rdma.Immediate {
				continue
			}
			if got++; got%batch == 0 || got == n {
				if _, err := l.b.Post(credit); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// BenchmarkConnect dials, accepts and closes, with the send queue of a session
// of 1 MiB chunks.
func BenchmarkConnect(b *testing.B) {
	cfg := rdma.RailConfig{Conns: 2, SendDepth: 64, RecvDepth: 64, MsgBytes: 1024, WriteBytes: 1 << 20}
	for _, g := range targets(b) {
		b.Run(g.device, func(b *testing.B) {
			p := New()
			l := newLink(b, p, g, cfg, 4096)
			b.ResetTimer()
			for b.Loop() {
				dialled, accepted := connect(b, p, g, l.railA, l.railB)
				dialled.Close()
				accepted.Close()
			}
		})
	}
}
