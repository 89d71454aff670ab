//go:build linux && cgo

package verbs

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"gdrcp/rdma"
)

// TestListenerIsMarked: the type of service of an id is set before it listens.
// The fake's rdma_listen fails with an errno that depends on it.
func TestListenerIsMarked(t *testing.T) {
	withoutTargets(t)
	fake{deviceList: oneDevice, functions: map[string]string{
		"rdma_create_event_channel": `static int tos;
			void *rdma_create_event_channel(void) { struct abi_cm_channel *ch = calloc(1, sizeof *ch); ch->fd = eventfd(0, 0); return ch; }`,
		"rdma_destroy_event_channel": `void rdma_destroy_event_channel(struct abi_cm_channel *ch) { close(ch->fd); free(ch); }`,
		"rdma_create_id":             `int rdma_create_id(void *ch, void **id, void *x, int ps) { tos = 0; *id = calloc(1, sizeof(struct abi_cm_id)); return 0; }`,
		"rdma_destroy_id":            `int rdma_destroy_id(void *id) { free(id); return 0; }`,
		"rdma_bind_addr":             `int rdma_bind_addr(void *id, void *a) { return 0; }`,
		"rdma_listen":                `int rdma_listen(void *id, int n) { errno = tos == 104 ? EADDRINUSE : tos ? EINVAL : EADDRNOTAVAIL; return -1; }`,
		"rdma_set_option": `int rdma_set_option(void *id, int level, int name, void *v, size_t n) {
			if (level == ABI_OPTION_ID && name == ABI_OPTION_ID_TOS && n == 1) tos = *(unsigned char *)v; return 0; }`,
	}}.build(t)
	p := New()
	p.dev = t.TempDir()
	if err := os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	at := netip.MustParseAddrPort("192.0.2.1:7474")
	for tos, want := range map[int]error{104: syscall.EADDRINUSE, 0: rdma.ErrNoDevice} {
		if _, err := p.Listen(at, rdma.Wire{TOS: tos}); !errors.Is(err, want) {
			t.Errorf("listening with type of service %d: %v, want %v", tos, err, want)
		}
	}
}
