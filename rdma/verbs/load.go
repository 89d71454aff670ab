//go:build linux && cgo

package verbs

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"gdrcp/rdma"
)

// Provider gives access to this machine's RDMA devices. The zero value is not
// usable; use [New].
type Provider struct {
	spin       time.Duration
	sysfs, dev string
	tables     gidTables

	load    sync.Once
	api     *C.struct_vb_api
	loadErr error

	mu      sync.Mutex
	rails   map[*rail]struct{} // the open ones
	watches map[*C.struct_abi_context]*watch
	pads    map[*C.struct_abi_context]*keyPad

	opened atomic.Uint32 // number of rails opened so far
}

// Option changes a default of a Provider.
type Option func(*Provider)

// WithSpin sets how long Rail.Wait polls at most before it sleeps. The default
// is 50 µs, or 0 if GOMAXPROCS is 2 or less: then spinning would take a
// processor from the program that Wait waits for.
func WithSpin(d time.Duration) Option {
	return func(p *Provider) { p.spin = d }
}

var _ rdma.Provider = (*Provider)(nil)

// New returns a provider. It uses neither libraries nor devices until one of
// its methods is called.
func New(opts ...Option) *Provider {
	p := &Provider{
		sysfs:   "/sys",
		dev:     "/dev/infiniband",
		rails:   map[*rail]struct{}{},
		watches: map[*C.struct_abi_context]*watch{},
		pads:    map[*C.struct_abi_context]*keyPad{},
	}
	if runtime.GOMAXPROCS(0) > 2 {
		p.spin = defaultSpin
	}
	for _, o := range opts {
		o(p)
	}
	return p
}

const defaultSpin = 50 * time.Microsecond

// Name is "verbs".
func (p *Provider) Name() string { return "verbs" }

// libraries opens the shared libraries once. If that fails, every later call returns
// the same error.
func (p *Provider) libraries() (*C.struct_vb_api, error) {
	p.load.Do(func() { p.api, p.loadErr = openLibraries() })
	return p.api, p.loadErr
}

func openLibraries() (*C.struct_vb_api, error) {
	ibverbs := C.CString(envOr("GDRCP_LIBIBVERBS", "libibverbs.so.1"))
	defer C.free(unsafe.Pointer(ibverbs))
	rdmacm := C.CString(envOr("GDRCP_LIBRDMACM", "librdmacm.so.1"))
	defer C.free(unsafe.Pointer(rdmacm))

	var api *C.struct_vb_api
	var le C.struct_vb_load_error
	rc := C.vb_load(ibverbs, rdmacm, &api, &le)
	if rc == 0 {
		return api, nil
	}
	library := C.GoString(&le.library[0])
	switch le.kind {
	case C.VB_NO_LIBRARY:
		return nil, &rdma.ProbeError{
			Reason: rdma.NoLibrary,
			Detail: C.GoString(&le.reason[0]),
			Hint:   "install rdma-core: apt install libibverbs1 librdmacm1 ibverbs-providers, or dnf install libibverbs librdmacm",
		}
	case C.VB_NO_SYMBOL:
		return nil, &rdma.ProbeError{
			Reason: rdma.OldLibrary,
			Detail: fmt.Sprintf("%s has no %s of version %s", library, C.GoString(&le.symbol[0]), C.GoString(&le.version[0])),
			Hint:   "install a current rdma-core; GDRCP_LIBIBVERBS and GDRCP_LIBRDMACM name other files",
		}
	}
	return nil, fmt.Errorf("load RDMA libraries: %w", errno(rc))
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

// ready loads the libraries and checks the other requirements step by step. It
// returns the names of the devices, at least one.
func (p *Provider) ready() ([]string, error) {
	api, err := p.libraries()
	if err != nil {
		return nil, err
	}
	room := C.int(64)
	names := make([]C.char, room*C.VB_NAME_BYTES)
	n := C.vb_device_names(api, &names[0], room)
	for n > room {
		room = n
		names = make([]C.char, room*C.VB_NAME_BYTES)
		n = C.vb_device_names(api, &names[0], room)
	}
	if n < 0 {
		return nil, noDeviceList(errno(n))
	}
	if n == 0 {
		return nil, &rdma.ProbeError{
			Reason: rdma.NoDevices,
			Detail: "the kernel knows no RDMA device that has a user-space driver",
			Hint:   "check `rdma link` and `ls /sys/class/infiniband`; the driver of the NIC and the package ibverbs-providers must be installed",
		}
	}
	if err := p.checkNodes(); err != nil {
		return nil, err
	}
	list := make([]string, n)
	for i := range list {
		list[i] = C.GoString(&names[i*C.VB_NAME_BYTES])
	}
	return list, nil
}

func noDeviceList(err error) error {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return &rdma.ProbeError{
			Reason: rdma.NoPermission,
			Detail: "the RDMA devices may not be listed: " + err.Error(),
			Hint:   "give this user read and write access to /dev/infiniband/*",
		}
	}
	return &rdma.ProbeError{
		Reason: rdma.NoKernel,
		Detail: "the kernel has no RDMA support loaded: " + err.Error(),
		Hint:   "modprobe ib_uverbs rdma_ucm, and the driver of the NIC; in a container, pass /dev/infiniband",
	}
}

// checkNodes distinguishes a missing rdma_cm node from a forbidden one. A node that can be
// opened does not imply a device, so checkNodes runs after the devices were listed.
func (p *Provider) checkNodes() error {
	node := filepath.Join(p.dev, "rdma_cm")
	f, err := os.OpenFile(node, os.O_RDWR, 0)
	switch {
	case err == nil:
		return f.Close()
	case errors.Is(err, os.ErrPermission):
		return &rdma.ProbeError{
			Reason: rdma.NoPermission,
			Detail: err.Error(),
			Hint:   "give this user read and write access to " + p.dev + "/*, or run as root",
		}
	case errors.Is(err, os.ErrNotExist):
		return &rdma.ProbeError{
			Reason: rdma.NoKernel,
			Detail: err.Error(),
			Hint:   "modprobe rdma_ucm; in a container, pass --device=/dev/infiniband/rdma_cm",
		}
	}
	return &rdma.ProbeError{Reason: rdma.NoKernel, Detail: err.Error(), Hint: "modprobe rdma_ucm"}
}

// nodeProblem returns why the device's file cannot be opened, or nil. If any is
// true, it returns the problem of another device's file if the device's own
// file has none. The libraries turn every reason into ENODEV, and librdmacm may
// then offer no device at all. The files are listed in sysfs.
func (p *Provider) nodeProblem(device string, any bool) error {
	nodes, _ := filepath.Glob(filepath.Join(p.sysfs, "class/infiniband_verbs/uverbs*"))
	var other error
	for _, node := range nodes {
		f, err := os.OpenFile(filepath.Join(p.dev, filepath.Base(node)), os.O_RDWR, 0)
		if err == nil {
			err = f.Close()
		}
		if err == nil {
			continue
		}
		owner := readLine(node, "ibdev")
		if owner == device {
			return err
		}
		if any {
			other = fmt.Errorf("librdmacm opens all devices or none, and %s fails: %w", owner, err)
		}
	}
	return other
}

// errno converts the 0 or -errno of the C code to an error.
func errno(rc C.int) error {
	if rc >= 0 {
		return nil
	}
	return syscall.Errno(-rc)
}
