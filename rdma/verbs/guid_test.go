//go:build linux && cgo

package verbs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/rdma"
)

// A device without a node GUID is listed with the reason and cannot be opened, and an
// address that is reached over it is never passed to librdmacm, which would crash.
func TestDeviceWithoutGUID(t *testing.T) {
	withoutTargets(t)
	const inLibrary = "bad file descriptor" // if librdmacm was called
	fake{deviceList: oneDevice, contexts: "errno = EIO; return 0;", functions: map[string]string{
		"rdma_create_event_channel": `void *rdma_create_event_channel(void) { errno = EBADF; return 0; }`,
	}}.build(t)
	lo, remote := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddrPort("127.0.0.1:9")
	for _, c := range []struct {
		name, guid string
		from       netip.Addr
		to         netip.AddrPort
		refused    bool
	}{
		{"no GUID", "0000:0000:0000:0000", netip.Addr{}, remote, true},
		{"no GUID, by its address", "0000:0000:0000:0000", lo, netip.MustParseAddrPort("192.0.2.1:9"), true},
		{"no GUID, by another's address", "0000:0000:0000:0000", netip.MustParseAddr("192.0.2.2"), remote, false},
		{"a GUID", "0000:0000:0000:0001", netip.Addr{}, remote, false},
		{"a GUID that cannot be read", "", netip.Addr{}, remote, false},
	} {
		files := map[string]string{
			"class/infiniband/fake0/node_type":                 "1: CA",
			"class/infiniband/fake0/node_guid":                 c.guid,
			"class/infiniband/fake0/ports/1/link_layer":        "Ethernet",
			"class/infiniband/fake0/ports/1/state":             "4: ACTIVE",
			"class/infiniband/fake0/ports/1/gids/0":            "0000:0000:0000:0000:0000:ffff:7f00:0001",
			"class/infiniband/fake0/ports/1/gid_attrs/ndevs/0": "lo",
		}
		p := New()
		p.dev, p.sysfs = t.TempDir(), writeTree(t, files)
		if err := os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		list, err := p.Devices()
		if err != nil || len(list) != 1 || strings.Contains(list[0].Problem, "node GUID is 0") != strings.HasPrefix(c.name, "no GUID") {
			t.Errorf("%s: %+v, %v", c.name, list, err)
		}
		if strings.HasPrefix(c.name, "no GUID") {
			if _, err := p.Open("fake0", rdma.RailConfig{Conns: 1, SendDepth: 1, RecvDepth: 1, MsgBytes: 1, WriteBytes: 1}); err == nil || !strings.Contains(err.Error(), "node GUID is 0") {
				t.Errorf("%s: open: %v", c.name, err)
			}
		}
		_, err = p.resolve(t.Context(), c.from, c.to)
		refused := errors.Is(err, rdma.ErrNoDevice) && strings.Contains(err.Error(), "node GUID is 0")
		asked := err != nil && strings.Contains(err.Error(), inLibrary)
		if refused != c.refused || asked == c.refused {
			t.Errorf("%s: resolve: %v", c.name, err)
		}
	}
}
