//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"unsafe"
)

// The events of rdma_get_cm_event(3).
const (
	evAddrResolved = iota
	evAddrError
	evRouteResolved
	evRouteError
	evConnectRequest
	evConnectResponse
	evConnectError
	evUnreachable
	evRejected
	evEstablished
	evDisconnected
	evDeviceRemoval
	evMulticastJoin
	evMulticastError
	evAddrChange
	evTimewaitExit
)

// cmEvent is an event of the connection manager. data is the peer's.
type cmEvent struct {
	kind   int
	status int
	id     *C.struct_abi_cm_id
	data   []byte
	// In a request: how many RDMA Reads the peer wants to have in flight to
	// this end, and how many it allows this end.
	readIn, readOut int
}

// channel is an rdma_cm event channel. Each connection and each listener has its own, so
// that a goroutine that waits for one does not receive an event of another.
type channel struct {
	api *C.struct_vb_api
	ch  *C.struct_abi_cm_channel
	fd  *pollFD
}

func openChannel(api *C.struct_vb_api) (*channel, error) {
	c := &channel{api: api}
	if rc := C.vb_cm_open(api, &c.ch); rc != 0 {
		return nil, fmt.Errorf("open rdma_cm event channel: %w", errno(rc))
	}
	fd, err := newPollFD(int(C.vb_cm_fd(c.ch)), "rdma_cm")
	if err != nil {
		C.vb_cm_close(api, c.ch)
		return nil, err
	}
	c.fd = fd
	return c, nil
}

// next waits for an event until ctx ends or the channel is closed.
func (c *channel) next(ctx context.Context) (cmEvent, error) {
	var ev C.struct_vb_cm_event
	var rc C.int
	err := c.fd.readContext(ctx, func(uintptr) bool {
		rc = C.vb_cm_next(c.api, c.ch, &ev)
		return rc != -C.int(syscall.EAGAIN)
	})
	if err == nil {
		err = errno(rc)
	}
	if err != nil {
		return cmEvent{}, err
	}
	return cmEvent{
		kind:   int(ev.event),
		status: int(ev.status),
		id:     ev.id,
		readIn: int(ev.read_in), readOut: int(ev.read_out),
		data: C.GoBytes(unsafe.Pointer(&ev.private_data[0]), ev.private_bytes),
	}, nil
}

// close frees the channel. First call fd.close, destroy every id on the
// channel, and wait for every next to return.
func (c *channel) close() {
	c.fd.close()
	C.vb_cm_close(c.api, c.ch)
}

// endpoint is an rdma_cm id on a channel of its own.
type endpoint struct {
	*channel
	id *C.struct_abi_cm_id
}

// destroy frees the id, then the channel. The queue pair must have been destroyed.
func (e *endpoint) destroy() {
	e.fd.close()
	if e.id != nil {
		C.vb_id_destroy(e.api, e.id)
	}
	e.channel.close()
}

// resolve makes an endpoint for remote and waits until the kernel has bound it
// to a device. from is the local address to bind to; it may be invalid.
func (p *Provider) resolve(ctx context.Context, from netip.Addr, remote netip.AddrPort) (*endpoint, error) {
	if err := p.refuseWithoutGUID(ctx, from, remote); err != nil {
		return nil, err
	}
	api, err := p.libraries()
	if err != nil {
		return nil, err
	}
	to, err := toC(remote)
	if err != nil {
		return nil, err
	}
	var src C.struct_vb_addr
	if from.IsValid() {
		if src, err = toC(netip.AddrPortFrom(from, 0)); err != nil {
			return nil, err
		}
	}
	ch, err := openChannel(api)
	if err != nil {
		return nil, err
	}
	e := &endpoint{channel: ch}
	if rc := C.vb_cm_resolve(api, ch.ch, &src, &to, C.int(resolveTimeout.Milliseconds()), &e.id); rc != 0 {
		err = errno(rc)
	} else {
		_, err = e.await(ctx, evAddrResolved)
	}
	if err != nil {
		e.destroy()
		return nil, err
	}
	return e, nil
}

// await waits for one kind of event; any other is an *eventError.
func (e *endpoint) await(ctx context.Context, kind int) (cmEvent, error) {
	for {
		ev, err := e.next(ctx)
		switch {
		case err != nil:
			return ev, fmt.Errorf("wait for %s: %w", eventNames[kind], err)
		case ev.kind == kind && ev.status == 0:
			return ev, nil
		case ev.kind == evAddrChange:
			// A bond failed over. The connection remains up or fails by itself.
		default:
			return ev, &eventError{ev: ev}
		}
	}
}

// device returns the name of the device that the id is bound to.
func (e *endpoint) device() string {
	return C.GoString(C.vb_id_device(e.api, e.id))
}

// addrs returns the two ends' addresses.
func (e *endpoint) addrs() (local, remote netip.AddrPort) {
	var l, r C.struct_vb_addr
	C.vb_id_addrs(e.id, &l, &r)
	return fromC(&l), fromC(&r)
}

// port returns the number of the port that the id is bound to, and this end's
// GID there. The GID is invalid if the id has none.
func (e *endpoint) port() (number int, gid netip.Addr) {
	var b [16]byte
	number = int(C.vb_id_port(e.id, (*C.uint8_t)(&b[0])))
	if b != [16]byte{} {
		gid = netip.AddrFrom16(b)
	}
	return number, gid
}
