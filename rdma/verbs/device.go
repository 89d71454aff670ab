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
	"strings"
	"syscall"
	"unsafe"

	"gdrcp/rdma"
)

// Devices lists the RDMA devices. One that no rail can be opened on now has a
// Problem. Where none is usable the error is nil and every Problem is set.
// Opening the devices the first time takes milliseconds each.
func (p *Provider) Devices() ([]rdma.Device, error) {
	names, err := p.ready()
	if err != nil {
		return nil, err
	}
	list := make([]rdma.Device, 0, len(names))
	for _, name := range names {
		d := readDevice(p.sysfs, name)
		ctx, err := p.context(name)
		if err != nil {
			d.Problem, d.Reason = problemOf(err)
		} else {
			p.queryPorts(ctx, &d)
		}
		if d.Usable() {
			d.Problem, d.Reason = judge(d)
		}
		list = append(list, d)
	}
	return list, nil
}

// context returns the device's context as librdmacm holds it: protection
// domains and queues must be of the very context that its ids name.
func (p *Provider) context(name string) (*C.struct_abi_context, error) {
	c := C.CString(name)
	defer C.free(unsafe.Pointer(c))
	var ctx *C.struct_abi_context
	if rc := C.vb_context(p.api, c, &ctx); rc != 0 {
		return nil, fmt.Errorf("open device %s: %w", name, errno(rc))
	}
	return ctx, nil
}

// describe is Devices for one device, or rdma.ErrNoDevice.
func (p *Provider) describe(name string) (rdma.Device, *C.struct_abi_context, error) {
	names, err := p.ready()
	if err != nil {
		return rdma.Device{}, nil, err
	}
	for _, n := range names {
		if n != name {
			continue
		}
		ctx, err := p.context(name)
		if err != nil {
			return rdma.Device{}, nil, err
		}
		d := readDevice(p.sysfs, name)
		p.queryPorts(ctx, &d)
		if d.Usable() {
			d.Problem, d.Reason = judge(d)
		}
		return d, ctx, nil
	}
	return rdma.Device{}, nil, fmt.Errorf("device %s (there are %s): %w", name, strings.Join(names, ", "), rdma.ErrNoDevice)
}

// queryPorts adds what only the device itself tells.
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

// judge says why no rail can be opened on d, or nothing.
func judge(d rdma.Device) (problem string, reason rdma.ProbeReason) {
	if len(d.Ports) == 0 {
		return "it has no port", rdma.BadDevice
	}
	if d.Transport == "" {
		return "its transport does not do reliable connections (as on EFA and usNIC)", rdma.BadDevice
	}
	var states []string
	active, addressed := false, false
	for _, p := range d.Ports {
		states = append(states, p.State)
		active = active || p.State == "ACTIVE"
		addressed = addressed || (p.State == "ACTIVE" && len(p.Addrs) > 0)
	}
	switch {
	case !active:
		return "no port is active (" + strings.Join(states, ", ") + "): check the cable, the switch and `ip link`", rdma.NoActivePort
	case !addressed:
		return "no active port has an IP address: give its network interface one (on InfiniBand, IPoIB)", rdma.NoAddress
	}
	return "", 0
}

func problemOf(err error) (problem string, reason rdma.ProbeReason) {
	if errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM) {
		return err.Error() + ": give this user read and write access to /dev/infiniband/*", rdma.NoPermission
	}
	return err.Error(), rdma.BadDevice
}
