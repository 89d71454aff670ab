package xfer_test

import (
	"net/netip"
	"path/filepath"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A server that restarts between its grant and the first queue pair does not know the session. The
// client authenticates to it again.
func TestServerIsStartedAnewBehindItsGrant(t *testing.T) {
	w := tcpWay(t)
	before, root := serve(t, w), t.TempDir()
	after := serve(t, w, func(cfg *xfer.ServerConfig) {
		cfg.Keys = xfer.OneKey(before.ep.Key, xfer.Admission{Root: xfer.DirRoot(root)})
	})
	at := func(s *served) netip.AddrPort { return netip.AddrPortFrom(w.addr, s.ep.Port) }
	through := xfer.Forward(t, func(i int) netip.AddrPort {
		if i == 0 {
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
	// The client stops after several attempts if the server never knows it.
	never := xfer.Forward(t, func(i int) netip.AddrPort { return at([]*served{before, after}[i%2]) })
	ep.Port = never.Port()
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, ep, "other", w.options(t)); err == nil {
		t.Error("a copy to a server that forgets every session")
	}
}
