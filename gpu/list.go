//go:build linux && cgo

package gpu

/*
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"strings"
	"unsafe"
)

// Devices lists the GPUs in the driver's order. A GPU that cannot be used has a
// Problem. The free size of BAR1 is as of the call.
func (d *Driver) Devices() []Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	list := make([]Device, d.count)
	for i := range list {
		list[i] = d.describe(i)
	}
	return list
}

// describe describes one GPU. The caller ensures that the driver is not closed meanwhile.
func (d *Driver) describe(index int) Device {
	dev := Device{
		Index: index, NUMANode: -1, MemoryBytes: -1, BAR1Bytes: -1, BAR1FreeBytes: -1,
		DriverVersion: d.Version(),
		ComputeMajor:  d.attribute(index, C.ABI_ATTR_COMPUTE_MAJOR),
		ComputeMinor:  d.attribute(index, C.ABI_ATTR_COMPUTE_MINOR),
		// The attributes depend on the device, the functions on the driver.
		DMABuf:         d.attribute(index, C.ABI_ATTR_DMA_BUF) == 1 && C.gdr_can_export(d.api) != 0,
		GPUDirect:      d.attribute(index, C.ABI_ATTR_GPUDIRECT_RDMA) == 1,
		WritesOrdering: d.attribute(index, C.ABI_ATTR_WRITES_ORDERING),
		C2C:            d.attribute(index, C.ABI_ATTR_HOST_PAGE_TABLES) == 1,
	}
	flush := d.attribute(index, C.ABI_ATTR_FLUSH_OPTIONS)
	dev.HostFlush = flush > 0 && flush&C.ABI_FLUSH_OPTION_HOST != 0 && C.gdr_can_flush(d.api) != 0
	if d.attribute(index, C.ABI_ATTR_COMPUTE_MODE) == C.ABI_COMPUTE_MODE_PROHIBITED {
		dev.Problem = "its compute mode is Prohibited: nvidia-smi -c 0 changes it"
	}
	var id C.struct_gdr_identity
	if rc := C.gdr_device_identity(d.api, C.int(index), &id); rc != 0 {
		dev.Problem = "the driver does not describe it: " + d.errorName(rc)
		return dev
	}
	if l := d.lost.Load(); l != nil {
		dev.Problem = "the process can use no GPU any more, since " + l.cause.Error() + ": it has to be started again"
	}
	dev.Name = C.GoString(&id.name[0])
	dev.UUID = spellUUID(C.GoBytes(unsafe.Pointer(&id.uuid[0]), C.int(len(id.uuid))), id.is_instance != 0)
	dev.MemoryBytes = int64(id.memory_bytes)
	dev.PCIAddress = strings.ToLower(C.GoString(&id.pci_address[0]))
	dev.NUMANode = numaNode(d.sysfs, dev.PCIAddress)
	d.readBAR1(&dev)
	return dev
}

func (d *Driver) attribute(index int, attribute C.int) int {
	return int(C.gdr_device_attribute(d.api, C.int(index), attribute))
}

func (d *Driver) readBAR1(dev *Device) {
	if d.nvml == nil {
		return
	}
	address := C.CString(dev.PCIAddress)
	defer C.free(unsafe.Pointer(address))
	var total, free C.int64_t
	if C.gdr_nvml_bar1(d.nvml, address, &total, &free) == 0 {
		dev.BAR1Bytes, dev.BAR1FreeBytes = int64(total), int64(free)
	}
}

// spellUUID formats the UUID of a GPU, or of a MIG instance, as nvidia-smi does.
func spellUUID(b []byte, isInstance bool) string {
	kind := "GPU"
	if isInstance {
		kind = "MIG"
	}
	return fmt.Sprintf("%s-%x-%x-%x-%x-%x", kind, b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}
