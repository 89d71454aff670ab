package xfer_test

import (
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// forward passes connections on: each to the address that to names for its number, from 0.
func forward(t *testing.T, to func(n int) string) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	pass := func(dst, src net.Conn) {
		_, _ = io.Copy(dst, src)
		dst.Close()
		src.Close()
	}
	go func() {
		for n := 0; ; n++ {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to(n))
			if err != nil {
				client.Close()
				continue
			}
			go pass(server, client)
			go pass(client, server)
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort()
}

// A server that is started anew between its grant and the first queue pair does not know the
// session. The client authenticates to it again.
func TestServerIsStartedAnewBehindItsGrant(t *testing.T) {
	w := tcpWay(t)
	before, root := serve(t, w), t.TempDir()
	after := serve(t, w, func(cfg *xfer.ServerConfig) {
		cfg.Keys = xfer.OneKey(before.ep.Key, xfer.Admission{Root: xfer.DirRoot(root)})
	})
	at := func(s *served) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(int(s.ep.Port))) }
	through := forward(t, func(n int) string {
		if n == 0 {
			return at(before)
		}
		return at(after)
	})
	src := filepath.Join(t.TempDir(), "file")
	write(t, src, randomBytes(t, 1<<20))
	ep := before.ep
	ep.Port = through.Port()
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, ep, "file", w.options(t)); err != nil {
		t.Fatal(err)
	}
	if !sameFile(t, src, filepath.Join(root, "file"), new([2][64 << 10]byte)) {
		t.Error("other bytes")
	}
	// One that never knows it is no server to go on with.
	never := forward(t, func(n int) string { return at([]*served{before, after}[n%2]) })
	ep.Port = never.Port()
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, ep, "other", w.options(t)); err == nil {
		t.Error("a copy to a server that forgets every session")
	}
}
