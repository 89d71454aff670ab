//go:build linux && cgo

package verbs

/*
#include "shim.h"
#include <stdlib.h>
*/
import "C"

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"

	"gdrcp/rdma"
)

// Devices lists the RDMA devices. A device on which no rail can be opened now
// has a Problem. If no device is usable, the error is nil and every Problem is
// set. The first call opens the devices, which takes milliseconds for each.
func (p *Provider) Devices() ([]rdma.Device, error) {
	names, err := p.ready()
	if err != nil {
		return nil, err
	}
	all := p.openDevices()
	defer all.close()
	list := make([]rdma.Device, 0, len(names))
	for _, name := range names {
		d, _ := p.describe(name, all)
		list = append(list, d)
	}
	return list, nil
}

// openDevices are the devices' contexts as librdmacm holds them: protection domains and
// queues must belong to the same context that librdmacm's ids use. When a device is
// removed, librdmacm closes its context with the last reference. Its ids hold references,
// and so does list on behalf of this openDevices. Listing takes time for each device.
type openDevices struct {
	api  *C.struct_vb_api
	list **C.struct_abi_context
	err  error // the reason if list is nil
}

func (p *Provider) openDevices() openDevices {
	o := openDevices{api: p.api}
	o.err = errno(C.vb_contexts(p.api, &o.list))
	return o
}

// close releases the contexts. Everything made from them must have been freed.
func (o openDevices) close() {
	if o.list != nil {
		C.vb_contexts_free(o.api, o.list)
	}
}

// contextOf returns the context of a device.
func (p *Provider) contextOf(name string, all openDevices) (*C.struct_abi_context, error) {
	err := all.err
	if err == nil {
		c := C.CString(name)
		defer C.free(unsafe.Pointer(c))
		if ctx := C.vb_context(p.api, all.list, c); ctx != nil {
			return ctx, nil
		}
		err = syscall.ENODEV
	}
	if why := p.nodeProblem(name, all.err != nil); why != nil {
		err = why
	}
	return nil, fmt.Errorf("open device %s: %w", name, err)
}

// describe returns a listed device. Its Problem is the reason if the device is
// not open, or if no rail can be opened on it.
func (p *Provider) describe(name string, all openDevices) (rdma.Device, *C.struct_abi_context) {
	d := readDevice(p.sysfs, name, &p.tables)
	if lacksGUID(filepath.Join(p.sysfs, "class/infiniband", name)) {
		d.Problem, d.Reason = noGUID, rdma.BadDevice
		return d, nil
	}
	ctx, err := p.contextOf(name, all)
	if err != nil {
		d.Problem, d.Reason = problemOf(err)
		return d, nil
	}
	p.queryPorts(ctx, &d)
	d.DMABufProblem = p.imports(ctx)
	d.DMABuf = d.DMABufProblem == ""
	if d.Usable() {
		d.Problem, d.Reason = judge(d)
	}
	return d, ctx
}

// openDevice is one of openDevices.
type openDevice struct {
	all openDevices
	ctx *C.struct_abi_context // nil if the device is not usable
}

// find is describe for a name that may be unknown: then the error is
// rdma.ErrNoDevice. The caller closes the openDevice.
func (p *Provider) find(name string) (rdma.Device, openDevice, error) {
	names, err := p.ready()
	if err != nil {
		return rdma.Device{}, openDevice{}, err
	}
	if !slices.Contains(names, name) {
		return rdma.Device{}, openDevice{}, fmt.Errorf("device %s (there are %s): %w", name, strings.Join(names, ", "), rdma.ErrNoDevice)
	}
	o := openDevice{all: p.openDevices()}
	var d rdma.Device
	d, o.ctx = p.describe(name, o.all)
	return d, o, nil
}

// queryPorts adds the properties that only the device itself reports.
func (p *Provider) queryPorts(ctx *C.struct_abi_context, d *rdma.Device) {
	for i := range d.Ports {
		var a C.struct_vb_port
		if rc := C.vb_query_port(p.api, ctx, C.int(d.Ports[i].Number), &a); rc != 0 {
			d.Problem, d.Reason = fmt.Sprintf("port %d cannot be queried: %s", d.Ports[i].Number, errno(rc)), rdma.BadDevice
			continue
		}
		if a.mtu_code >= 1 && a.mtu_code <= 5 {
			d.Ports[i].MTUBytes = 128 << a.mtu_code
		}
	}
}

// judge returns the reason why no rail can be opened on d, or an empty string.
func judge(d rdma.Device) (problem string, reason rdma.ProbeReason) {
	if len(d.Ports) == 0 {
		return "it has no port", rdma.BadDevice
	}
	if d.Transport == "" {
		return "its transport does not do reliable connections (as on EFA and usNIC)", rdma.BadDevice
	}
	var states []string
	active, addressed, initialized := false, false, false
	for _, p := range d.Ports {
		states = append(states, p.State)
		initialized = initialized || p.State == "INIT" && p.LinkLayer == "InfiniBand"
		active = active || p.State == "ACTIVE"
		addressed = addressed || (p.State == "ACTIVE" && len(p.Addrs) > 0)
	}
	switch {
	case !active && initialized:
		return "no port is active (" + strings.Join(states, ", ") + "): the link is up, but no subnet manager has configured it: start one, such as opensm, on the fabric", rdma.NoActivePort
	case !active:
		return "no port is active (" + strings.Join(states, ", ") + "): check the cable, the switch and `ip link`", rdma.NoActivePort
	case !addressed:
		return "no active port has an IP address in this network namespace: give its network interface one (on InfiniBand, IPoIB)", rdma.NoAddress
	}
	return "", 0
}

func problemOf(err error) (problem string, reason rdma.ProbeReason) {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return err.Error() + ": give this user read and write access to /dev/infiniband/*", rdma.NoPermission
	}
	return err.Error(), rdma.BadDevice
}
