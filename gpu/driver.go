//go:build linux && cgo

package gpu

/*
#cgo CFLAGS: -O2 -Wall -Wextra
#cgo LDFLAGS: -ldl
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Driver is NVIDIA's driver, loaded and initialized.
type Driver struct {
	api     *C.struct_gdr_api
	nvml    *C.struct_gdr_nvml // nil without it
	version int                // as the driver reports it: 12040
	count   int
	sysfs   string

	idleTime time.Duration
	kept     []*kept // indexed by GPU

	mu       sync.Mutex
	contexts int // open ones
	closed   bool

	lost   atomic.Pointer[loss]
	hung   atomic.Bool // lost because a GPU hangs
	lostMu sync.Mutex  // guards changes of lost, and onLost
	onLost []func(error)
}

// Open opens libcuda.so.1, or the file that GDRCP_LIBCUDA names, and initializes the
// driver. If NVML is installed, as libnvidia-ml.so.1 or the file that GDRCP_LIBNVML names,
// Open opens it too, to get the size of BAR1. The error is a *ProbeError. Open blocks
// while the driver initializes, which takes seconds if nothing keeps it loaded.
//
// The library remains loaded when the Driver is closed. A process needs one
// Driver; several are independent.
func Open() (*Driver, error) {
	// This is nvidia-smi's order: the driver's default order begins with the fastest GPU.
	if _, set := os.LookupEnv("CUDA_DEVICE_ORDER"); !set {
		if err := os.Setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID"); err != nil {
			return nil, fmt.Errorf("choose the order of GPUs: %w", err)
		}
	}
	api, err := loadLibrary(envOr("GDRCP_LIBCUDA", "libcuda.so.1"))
	if err != nil {
		return nil, err
	}
	d := &Driver{api: api, sysfs: "/sys", idleTime: idleTime}
	if err := d.start(); err != nil {
		C.gdr_unload(api)
		return nil, err
	}
	libnvml := C.CString(envOr("GDRCP_LIBNVML", "libnvidia-ml.so.1"))
	defer C.free(unsafe.Pointer(libnvml))
	d.nvml = C.gdr_nvml_open(libnvml)
	return d, nil
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

func loadLibrary(file string) (*C.struct_gdr_api, error) {
	libcuda := C.CString(file)
	defer C.free(unsafe.Pointer(libcuda))
	var api *C.struct_gdr_api
	var le C.struct_gdr_load_error
	if C.gdr_load(libcuda, &api, &le) == 0 {
		return api, nil
	}
	switch le.kind {
	case C.GDR_NO_LIBRARY:
		return nil, &ProbeError{
			Reason: NoLibrary,
			Detail: C.GoString(&le.reason[0]),
			Hint:   "install NVIDIA's driver; in a container, start it with NVIDIA's container toolkit (docker run --gpus all)",
		}
	case C.GDR_NO_SYMBOL:
		return nil, &ProbeError{
			Reason: OldDriver,
			Detail: fmt.Sprintf("%s has no %s", file, C.GoString(&le.symbol[0])),
			Hint:   "install a driver for CUDA 11.0 or later; for dma-buf, 11.7 or later with the open kernel modules",
		}
	case C.GDR_STUB_LIBRARY:
		return nil, stubLibrary(file)
	}
	return nil, &ProbeError{Reason: NoLibrary, Detail: "load " + file + ": out of memory"}
}

func stubLibrary(file string) error {
	return &ProbeError{
		Reason: NoDriver,
		Detail: file + " is the CUDA toolkit's stand-in for linking, not a driver",
		Hint:   "take the toolkit's folder lib64/stubs out of LD_LIBRARY_PATH",
	}
}

// start initializes the driver and queries its version and number of GPUs.
func (d *Driver) start() error {
	if rc := C.gdr_init(d.api); rc != 0 {
		return d.notStarted(rc)
	}
	var version, count C.int
	if rc := C.gdr_driver_version(d.api, &version); rc != 0 {
		return d.notStarted(rc)
	}
	if rc := C.gdr_device_count(d.api, &count); rc != 0 {
		return d.notStarted(rc)
	}
	if count == 0 {
		return d.notStarted(C.ABI_NO_DEVICE)
	}
	d.version, d.count = int(version), int(count)
	for i := range d.count {
		d.kept = append(d.kept, &kept{driver: d, index: i})
	}
	return nil
}

// notStarted converts the result of cuInit to a ProbeError. The driver returns
// CUDA_ERROR_NO_DEVICE if there is no GPU, and also if its files in /dev are
// missing or not accessible.
func (d *Driver) notStarted(rc C.int) error {
	e := &ProbeError{Reason: NoDriver, Detail: "start NVIDIA's driver: " + d.errorName(rc)}
	switch rc {
	case C.ABI_NO_DEVICE:
		e.Reason = NoDevice
		e.Detail = "the driver shows this process no GPU (CUDA_ERROR_NO_DEVICE)"
		e.Hint = "check `nvidia-smi -L`, CUDA_VISIBLE_DEVICES, and that this user may open /dev/nvidia*; in a container, pass the GPUs in"
	case C.ABI_SYSTEM_DRIVER_MISMATCH:
		e.Hint = "libcuda.so.1 and the kernel module are of different versions, as after an update without a reboot: reload the module or reboot"
	case C.ABI_STUB_LIBRARY:
		return stubLibrary("libcuda.so.1")
	default:
		e.Hint = cmp.Or(hintOfSystem(int(rc)), "check `nvidia-smi` and `dmesg`; the modules nvidia and nvidia_uvm must be loaded")
	}
	return e
}

// errorName returns a CUresult's name, or its number if the driver has no name for it.
func (d *Driver) errorName(rc C.int) string {
	if name := C.gdr_error_name(d.api, rc); name != nil {
		return C.GoString(name)
	}
	return "CUresult " + strconv.Itoa(int(rc))
}

// Version returns the CUDA version that the driver supports, such as 12.4. This
// is not the version of the driver itself.
func (d *Driver) Version() string {
	return fmt.Sprintf("%d.%d", d.version/1000, d.version%1000/10)
}

// Close ends the use of the driver, and frees the contexts and kernels that it keeps. It
// fails while a Context is open, and can then be called again. After a success it does
// nothing. It blocks for 5 s at most; then a GPU counts as hung. Its error includes the
// errors of contexts and kernels that were freed earlier because they were idle.
func (d *Driver) Close() error {
	if closed, err := d.shut(); closed || err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), closePatience)
	defer cancel()
	var errs []error
	for _, k := range d.kept {
		errs = append(errs, k.close(ctx))
	}
	if d.hung.Load() {
		return errors.Join(errs...) // an abandoned call may still return into the library
	}
	if d.nvml != nil {
		C.gdr_nvml_close(d.nvml)
	}
	C.gdr_unload(d.api)
	return errors.Join(errs...)
}

// shut prevents all further use of the driver, and reports whether it was shut before.
func (d *Driver) shut() (closed bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.closed && d.contexts > 0 {
		return false, fmt.Errorf("close the driver: %d GPUs are in use", d.contexts)
	}
	closed, d.closed = d.closed, true
	return closed, nil
}
