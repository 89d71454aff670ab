package ring

import (
	"errors"
	"fmt"

	"gdrcp/internal/numa"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// Ring is one end's slots on a rail: payload slots and the corresponding slots for the
// chunks' headers. Header slots are always in host memory. Both are mapped outside the Go
// heap and registered once for the session. Place makes a Ring, and Close frees it. A Ring
// does not track which slots are in use.
type Ring struct {
	// Slots may be fewer than requested, because the device did not accept more. In host
	// memory Fewer is the reason.
	Slots     int
	Fewer     error
	SlotBytes int // of payload in a slot
	padBytes  int // of padding after each slot
	// Payload is all slots, Stride bytes each. It is nil if the rail's device accesses the
	// slots in GPU memory directly.
	Payload   []byte
	header    []byte
	PayloadMR rdma.MR // for Payload or, if that is nil, for the slots in GPU memory
	HeaderMR  rdma.MR
	Device    *Device // nil without GPU memory
	// node is that of the rail's device, on which the ring's host memory is, unless parts
	// is set. It is nil if the node does not matter.
	node  *numa.Node
	parts []part
	// Memory describes the location of the payload, for both ends.
	Memory wire.Memory
}

// make maps and registers a ring in host memory. access is the peer's rights to it. The
// peer writes to a sink's ring, and has no access to a source's.
func (r *Ring) make(rail rdma.Rail, access rdma.Access) (err error) {
	if r.Payload, err = r.mapSlots(r.Stride()); err != nil {
		return fmt.Errorf("map a ring of %d slots of %d bytes: %w", r.Slots, r.SlotBytes, err)
	}
	if r.PayloadMR, err = rail.Register(rdma.HostRegion(r.Payload), access|rdma.Unordered); err != nil {
		return fmt.Errorf("register a ring of %d MiB: %w", r.Slots*r.Stride()>>20, err)
	}
	return r.mapHeaders(rail, access)
}

// mapHeaders maps and registers the header slots.
func (r *Ring) mapHeaders(rail rdma.Rail, access rdma.Access) (err error) {
	if r.header, err = r.mapSlots(wire.HeaderStride); err != nil {
		return fmt.Errorf("map the header ring: %w", err)
	}
	if r.HeaderMR, err = rail.Register(rdma.HostRegion(r.header), access); err != nil {
		return fmt.Errorf("register the header ring: %w", err)
	}
	return nil
}

// Map maps n bytes of anonymous memory, in huge pages if the kernel has any. Then the
// device's translation table and the registration are 512 times shorter (madvise(2),
// MADV_HUGEPAGE). The caller unmaps the memory.
func Map(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	return b, nil
}

// Stride is the distance from the start of a slot to that of the next, in bytes.
func (r *Ring) Stride() int { return r.SlotBytes + r.padBytes }

// Slot returns the payload memory of slot i, SlotBytes long. Its capacity includes the
// padding. It is host memory: a ring whose Device is Direct has none.
func (r *Ring) Slot(i int) []byte {
	at := i * r.Stride()
	return r.Payload[at : at+r.SlotBytes : at+r.Stride()]
}

// HeaderSlot returns the header memory of slot i, wire.HeaderStride bytes.
func (r *Ring) HeaderSlot(i int) []byte {
	return r.header[i*wire.HeaderStride : (i+1)*wire.HeaderStride : (i+1)*wire.HeaderStride]
}

// Info returns the addresses and keys of the slots on the ring's own rail, for the peer
// that writes to them.
func (r *Ring) Info() wire.RingInfo { return r.InfoOn(1, r.PayloadMR, r.HeaderMR) }

// InfoOn returns the addresses and keys of the slots on the rail of a link, on which they
// are registered as payload and header.
func (r *Ring) InfoOn(link uint32, payload, header rdma.MR) wire.RingInfo {
	return wire.RingInfo{
		Link: link, Slots: uint32(r.Slots), SlotBytes: uint32(r.SlotBytes),
		PayloadAddr: payload.Addr(), PayloadKey: payload.RKey(), HeaderAddr: header.Addr(), HeaderKey: header.RKey(),
	}
}

// RegisterOn registers the slots on a further rail. The caller closes the two regions
// before Close. The error wraps rdma.ErrUnsupported if the slots are in GPU memory, which
// only the ring's own rail can access.
func (r *Ring) RegisterOn(rail rdma.Rail, access rdma.Access) (payload, header rdma.MR, err error) {
	if r.Payload == nil {
		return nil, nil, fmt.Errorf("%w: slots in GPU memory on a second rail", rdma.ErrUnsupported)
	}
	if payload, err = rail.Register(rdma.HostRegion(r.Payload), access|rdma.Unordered); err != nil {
		return nil, nil, fmt.Errorf("register the ring: %w", err)
	}
	if header, err = rail.Register(rdma.HostRegion(r.header), access); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("register the header ring: %w", err), payload.Close())
	}
	return payload, header, nil
}

// Close deregisters and unmaps the ring. It waits for the GPU to finish using the slots.
// First, every Conn by which a peer could access the ring must be closed, and the rail's
// connections to itself must be idle. Close is safe on an incomplete ring and on nil.
func (r *Ring) Close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, mr := range []rdma.MR{r.PayloadMR, r.HeaderMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	errs = append(errs, r.Device.close())
	// A hung GPU may still use the slots that it can access.
	if r.Device.lost() {
		r.Payload = nil
	}
	for _, b := range []*[]byte{&r.Payload, &r.header} {
		if *b != nil {
			errs = append(errs, unix.Munmap(*b))
			*b = nil
		}
	}
	return errors.Join(errs...)
}
