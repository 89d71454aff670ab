//go:build linux && cgo

package verbs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// All devices are listed, however many there are, from one list of contexts:
// for each list librdmacm looks at every device.
func TestManyDevices(t *testing.T) {
	withoutTargets(t)
	const devices = 72
	const each = `struct dev { char ops[16]; int node, transport; char name[64]; };
		static struct dev d[72]; for (int i = 0; i < 72; i++) { __builtin_strcpy(d[i].name, "fake00"); d[i].name[4] += i / 10; d[i].name[5] += i % 10; }`
	fake{
		deviceList: each + `static int calls; if (++calls > 2) { errno = EMFILE; return 0; }
			static void *list[73]; for (int i = 0; i < 72; i++) list[i] = &d[i]; *n = 72; return list;`,
		contexts: each + `static int calls; if (++calls > 1) { errno = EMFILE; return 0; }
			static struct abi_context c[72], *list[73]; for (int i = 0; i < 72; i++) { c[i].device = (void *)&d[i]; list[i] = &c[i]; } return list;`,
		functions: workingDevice,
	}.build(t)
	files := map[string]string{}
	for i := range devices {
		port := fmt.Sprintf("class/infiniband/fake%02d/", i)
		files[port+"node_type"] = aRoCE
		files[port+"ports/1/link_layer"] = "Ethernet"
		files[port+"ports/1/state"] = "4: ACTIVE"
		files[port+"ports/1/gid_attrs/ndevs/0"] = "lo"
	}
	p := New()
	p.dev, p.sysfs = t.TempDir(), writeTree(t, files)
	if err := os.WriteFile(filepath.Join(p.dev, "rdma_cm"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	list, err := p.Devices()
	if err != nil || len(list) != devices {
		t.Fatalf("%d devices: %v", len(list), err)
	}
	for i, d := range list {
		if d.Name != fmt.Sprintf("fake%02d", i) || !d.Usable() {
			t.Errorf("device %d: %+v", i, d)
		}
	}
}
