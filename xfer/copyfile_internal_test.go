package xfer

import (
	"bytes"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/rdma"
)

// listenTwice makes a server listen at two addresses, which its client uses as two rails.
func listenTwice(t *testing.T, v *Server, p rdma.Provider) Endpoint {
	t.Helper()
	ep := Endpoint{Host: "two addresses", Key: testKey}
	for _, addr := range []string{"127.0.0.1", "127.0.0.2"} {
		at, err := v.Listen(p, netip.AddrPortFrom(netip.MustParseAddr(addr), 0), rdma.Device{})
		if err != nil {
			t.Fatal(err)
		}
		ep.Addrs = append(ep.Addrs, ServerAddr{Transport: "tcp", Addr: at})
	}
	return ep
}

// copyFile copies a file of that content to or from a server of root, and compares what arrived.
// err is that of the copy.
func copyFile(t *testing.T, c *Client, ep Endpoint, root string, push bool, data []byte, o Options) (sum *Summary, err error) {
	t.Helper()
	here, there := filepath.Join(t.TempDir(), "file"), filepath.Join(root, "file")
	from, to := here, there
	if !push {
		from, to = there, here
	}
	if err := os.WriteFile(from, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if push {
		sum, err = c.Push(t.Context(), []string{here}, ep, "file", o)
	} else {
		sum, err = c.Pull(t.Context(), ep, []string{"file"}, here, o)
	}
	if err != nil {
		return sum, err
	}
	if got, err := os.ReadFile(to); err != nil || !bytes.Equal(got, data) {
		t.Errorf("other bytes arrived, or none: %v", err)
	}
	return sum, nil
}
