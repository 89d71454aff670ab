package xfer

import (
	"errors"
	"fmt"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// ring is one end's slots on a rail: payload slots and, beside them, the slots
// of the chunks' headers, which stay in host memory wherever the payload is.
// Both are mapped outside the Go heap and registered once for the session.
type ring struct {
	slots     int
	slotBytes int
	padBytes  int    // behind each slot
	payload   []byte // nil where the rail's device reaches the slots in GPU memory
	header    []byte
	payloadMR rdma.MR
	headerMR  rdma.MR
	device    *deviceRing // nil without GPU memory
	// memory is where the payload is, in words for both ends.
	memory wire.Memory
}

// make maps and registers a ring in host memory. access is what the peer may do
// to it: a sink's ring is written by the peer, a source's by nobody.
func (r *ring) make(rail rdma.Rail, access rdma.Access) (err error) {
	if r.payload, err = mapSlots(r.slots * r.stride()); err != nil {
		return fmt.Errorf("map a ring of %d slots of %d bytes: %w", r.slots, r.slotBytes, err)
	}
	if r.payloadMR, err = rail.Register(rdma.HostRegion(r.payload), access); err != nil {
		return fmt.Errorf("register a ring of %d MiB: %w", len(r.payload)>>20, err)
	}
	return r.mapHeaders(rail, access)
}

// mapHeaders maps and registers the slots of the headers.
func (r *ring) mapHeaders(rail rdma.Rail, access rdma.Access) (err error) {
	if r.header, err = mapSlots(r.slots * wire.HeaderStride); err != nil {
		return fmt.Errorf("map the header ring: %w", err)
	}
	if r.headerMR, err = rail.Register(rdma.HostRegion(r.header), access); err != nil {
		return fmt.Errorf("register the header ring: %w", err)
	}
	return nil
}

// mapSlots maps anonymous memory, in huge pages where the kernel has them: a
// device's translation table and the registration are then 512 times shorter.
func mapSlots(n int) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return nil, err
	}
	if err := unix.Madvise(b, unix.MADV_HUGEPAGE); err != nil && !errors.Is(err, unix.EINVAL) {
		return nil, errors.Join(err, unix.Munmap(b))
	}
	return b, nil
}

// stride is from the beginning of a slot to that of the next, in bytes.
func (r *ring) stride() int { return r.slotBytes + r.padBytes }

// slot is the payload memory of slot i. Its capacity has the padding, too.
func (r *ring) slot(i int) []byte {
	at := i * r.stride()
	return r.payload[at : at+r.slotBytes : at+r.stride()]
}

// headerSlot is the header memory of slot i.
func (r *ring) headerSlot(i int) []byte {
	return r.header[i*wire.HeaderStride : (i+1)*wire.HeaderStride : (i+1)*wire.HeaderStride]
}

func (r *ring) info() wire.RingInfo {
	return wire.RingInfo{
		Epoch: 1, Slots: uint32(r.slots), SlotBytes: uint32(r.slotBytes),
		PayloadAddr: r.payloadMR.Addr(), PayloadKey: r.payloadMR.RKey(),
		HeaderAddr: r.headerMR.Addr(), HeaderKey: r.headerMR.RKey(),
	}
}

// close deregisters and unmaps. Every Conn that could reach the ring must be
// closed before. Safe on a ring half made, and on nil.
func (r *ring) close() error {
	if r == nil {
		return nil
	}
	var errs []error
	for _, mr := range []rdma.MR{r.payloadMR, r.headerMR} {
		if mr != nil {
			errs = append(errs, mr.Close())
		}
	}
	errs = append(errs, r.device.close())
	// A GPU that hangs may still use the slots that it reaches.
	if r.device.lost() {
		r.payload = nil
	}
	for _, b := range []*[]byte{&r.payload, &r.header} {
		if *b != nil {
			errs = append(errs, unix.Munmap(*b))
			*b = nil
		}
	}
	return errors.Join(errs...)
}
