package ring

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gdrcp/gpu"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// Device is the part of a ring that is in GPU memory: the payload slots, and everything
// that moves bytes into and out of them. If the rail's device cannot access these slots,
// the ring also has payload slots in host memory, which are pinned for both devices, and
// chunks are copied from one kind of slot to the other.
type Device struct {
	gpu    *gpu.Context
	Slots  *gpu.Memory // without padding: slot i is at i*SlotBytes
	pinned *gpu.Pinned // the host's payload slots
	memory wire.Memory
	path   gpu.PathClass // to the rail's device; 0 for a software device
	// Workers, and a sink's Gatherers, have everything that they need before this ring is
	// announced to the peer. So an error of the GPU is known while host memory can still
	// be used instead.
	Workers, Gatherers []*Worker
	// Digests lets the GPU digest the Gatherers' chunks, in launches that are shared with
	// all other sinks on that GPU. It is nil at a source, and if the processor digests.
	Digests *gpu.Submitter
	// Batch is the maximum number of chunks that a source's worker, or a Gatherer, takes
	// at a time.
	Batch int
	// Private holds copies of slots that the peer can still write to, each at the offset
	// of its slot, if the copy uses or makes a manifest. Then the bytes written are the
	// bytes hashed. It is nil if no copies are needed.
	Private *gpu.Memory
	// page is host memory for probes and flushes. pageMR is its registration. loop is the
	// connection used for them; nil if the ring is staged.
	page   []byte
	pageMR rdma.MR
	loop   *loopback
}

// Direct reports whether the rail's device accesses the slots directly.
func (d *Device) Direct() bool { return d != nil && d.memory.Rung.Direct() }

// lost reports whether the GPU has memory that can no longer be freed.
func (d *Device) lost() bool { return d != nil && d.gpu.Lost() != nil }

// openDevice opens the GPU that the placement requests, or the one nearest to the rail's
// device.
func (p *placer) openDevice(ctx context.Context) (*Device, error) {
	if p.GPUs == nil {
		return nil, fmt.Errorf("%w: this end lends no GPU memory", rdma.ErrUnsupported)
	}
	driver, err := p.GPUs()
	if err != nil {
		return nil, unsupported(err)
	}
	// Devices report the loss too, but each with its own text.
	if err := driver.Lost(); err != nil {
		return nil, unsupported(err)
	}
	rail, devices := p.rail.Device(), driver.Devices()
	chosen, _, ok := gpu.Nearest(p.Sysfs, devices, rail.PCIAddress)
	switch {
	case p.Placement.GPU != wire.GPUAuto:
		if chosen, err = gpu.Find(devices, p.Placement.Wanted()); err != nil {
			return nil, unsupported(err)
		}
	case !ok:
		return nil, fmt.Errorf("%w: no GPU can be used%s", rdma.ErrUnsupported, firstProblem(devices))
	}
	c, err := driver.Use(ctx, chosen.Index)
	if err != nil {
		return nil, unsupported(err)
	}
	d := c.Device()
	if d.ComputeMajor < leastComputeMajor && p.Touched == nil {
		err := fmt.Errorf("%w: GPU %d digests from compute capability %d.0 on and has %d.%d",
			rdma.ErrUnsupported, d.Index, leastComputeMajor, d.ComputeMajor, d.ComputeMinor)
		return nil, errors.Join(err, c.Close())
	}
	r := &Device{gpu: c, memory: wire.Memory{GPU: d.Index, Name: d.Name, Flush: wire.FlushNone}}
	if rail.PCIAddress != "" {
		r.path = gpu.PathBetween(p.Sysfs, d.PCIAddress, rail.PCIAddress)
		r.memory.Path = r.path.String()
	}
	return r, nil
}

// leastComputeMajor is the minimum compute capability for the kernels.
const leastComputeMajor = 7

// firstProblem returns why the first unusable GPU cannot be used, as the end of a
// sentence.
func firstProblem(devices []gpu.Device) string {
	for _, d := range devices {
		if d.Problem != "" {
			return fmt.Sprintf(": GPU %d: %s", d.Index, d.Problem)
		}
	}
	return ""
}

// unsupported converts gpu.ErrUnsupported to rdma.ErrUnsupported, which callers of the
// engine check for.
func unsupported(err error) error {
	if errors.Is(err, gpu.ErrUnsupported) {
		return fmt.Errorf("%w: %w", rdma.ErrUnsupported, err)
	}
	return err
}

// alloc allocates device memory for the slots.
func (d *Device) alloc(slots, slotBytes int) (err error) {
	if d.Slots, err = d.gpu.Alloc(slots * slotBytes); err != nil {
		return fmt.Errorf("allocate a ring of %d slots of %d bytes: %w", slots, slotBytes, unsupported(err))
	}
	return nil
}

// region returns the slots as the memory path registers them.
func (d *Device) region(rung wire.Rung) (rdma.Region, error) {
	if err := d.Slots.Registrable(); err != nil {
		return rdma.Region{}, err
	}
	r := rdma.Region{Addr: d.Slots.Addr(), Len: d.Slots.Len(), DMABufFD: -1}
	if rung == wire.RungPeermem {
		return r, nil
	}
	fd, offset, err := d.Slots.DMABuf()
	if err != nil {
		return r, err
	}
	r.DMABufFD, r.DMABufOffset = fd, uint64(offset)
	return r, nil
}

// needsFlush implements NCCL's rule. Up to compute capability 8, a completion does not
// mean that the GPU sees the data. From 9 on it does, unless a coherent link connects the
// GPU to the processor, because the data does not travel over that link. If the driver
// reports that such writes are not ordered, they are flushed.
func needsFlush(d gpu.Device) bool {
	return d.ComputeMajor < 9 || d.C2C || d.WritesOrdering == 0
}

// close frees the device memory. The caller has closed its registrations. Closing again
// does nothing.
func (d *Device) close() error {
	if d == nil {
		return nil
	}
	var errs []error
	// One worker's remaining operations may use another's memory.
	workers := slices.Concat(d.Gatherers, d.Workers)
	for _, w := range workers {
		errs = append(errs, w.drain())
	}
	if d.Digests != nil {
		errs = append(errs, d.Digests.Close())
	}
	for _, w := range workers {
		errs = append(errs, w.close())
	}
	d.Gatherers, d.Workers = nil, nil
	if d.Private != nil {
		errs = append(errs, d.Private.Close())
	}
	if d.pageMR != nil {
		errs = append(errs, d.pageMR.Close())
	}
	if d.page != nil && d.gpu.Lost() == nil {
		errs = append(errs, unix.Munmap(d.page))
		d.page = nil
	}
	if d.pinned != nil {
		errs = append(errs, d.pinned.Close())
	}
	if d.Slots != nil {
		errs = append(errs, d.Slots.Close())
	}
	return errors.Join(append(errs, d.gpu.Close())...)
}

// Flush makes earlier writes of the rail's device visible to the GPU. The last of them
// ends storedBytes after the start of the slot; storedBytes is at least 1. A read through
// the same device pushes the writes before it (PCI Express ordering; NCCL does the same).
func (r *Ring) Flush(ctx context.Context, slot, storedBytes int) error {
	d := r.Device
	if d.memory.Flush == wire.FlushNone {
		return nil
	}
	last := r.PayloadMR.Addr() + uint64(slot*r.SlotBytes+storedBytes-1)
	if err := d.loop.do(ctx, rdma.WR{Op: rdma.OpRead, Local: d.pageMR, Len: 1, RemoteAddr: last, RKey: r.PayloadMR.RKey()}); err != nil {
		return fmt.Errorf("flush what arrived in GPU memory: %w", err)
	}
	return nil
}
