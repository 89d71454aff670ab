package ring

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"time"

	"gdrcp/gpu"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// trialTime is the timeout for the probe of one memory path.
const trialTime = 5 * time.Second

// climb tries the memory paths, best first.
func (p *placer) climb(ctx context.Context, r *Ring) error {
	d, slots := r.Device, r.Slots
	why, rung, err := p.directRung(ctx, r)
	if err != nil {
		return err
	}
	d.memory.Rung, d.memory.Why = rung, strings.Join(why, "; ")
	if rung.Direct() {
		return r.mapHeaders(p.rail, p.Access)
	}
	d.memory.Flush = wire.FlushNone
	if p.Placement.Direct {
		return errNotDirect(&d.memory)
	}
	if err := r.resize(slots); err != nil {
		return err
	}
	if err := r.make(p.rail, p.Access); err != nil {
		return err
	}
	if d.pinned, err = d.gpu.Pin(r.Payload); err != nil {
		return fmt.Errorf("pin the ring for the GPU: %w", unsupported(err))
	}
	return nil
}

// mostDirectPath is the longest path between a GPU and a device over which the device may
// access the GPU's memory directly, like the default of NCCL_NET_GDR_LEVEL. Beyond it the
// processor's host bridge forwards the traffic, which is slow on many machines.
const mostDirectPath = gpu.PXB

// directRung finds the best memory path by which the rail's device can access the slots
// directly, or wire.RungStaged if there is none. why explains that path and the rejection
// of each better one.
func (p *placer) directRung(ctx context.Context, r *Ring) (why []string, took wire.Rung, err error) {
	if p.Touched != nil {
		return []string{p.Touched.Error()}, wire.RungStaged, nil
	}
	if p.rail.Device().Transport == rdma.TCP {
		return []string{"TCP sockets do not reach GPU memory"}, wire.RungStaged, nil
	}
	if path := r.Device.path; path > mostDirectPath && !p.Placement.Direct {
		return []string{fmt.Sprintf("%s between the GPU and %s; --require gpudirect takes that", path, p.rail.Device().Name)}, wire.RungStaged, nil
	}
	slots := r.Slots
	for _, rung := range []wire.Rung{wire.RungDMABuf, wire.RungPeermem} {
		fewer, err := p.tryFewer(ctx, r, rung, slots)
		if err == nil {
			if fewer != "" {
				why = append(why, fewer)
			}
			return why, rung, nil
		}
		if ctx.Err() != nil {
			return nil, "", context.Cause(ctx)
		}
		if errors.Is(err, errNoSlots) {
			return nil, "", err
		}
		why = append(why, fmt.Sprintf("%s: %s", rung, reasonOf(err)))
	}
	return why, wire.RungStaged, nil
}

// errTrial means that a registration succeeded but its probe failed.
var errTrial = errors.New("trial")

// reasonOf returns the relevant part of a memory path's error. For a refused registration
// it omits the call and the device, which the caller reports.
func reasonOf(err error) string {
	var op *rdma.OpError
	if errors.As(err, &op) && op.Status != "" && !errors.Is(err, errTrial) {
		return op.Status
	}
	return err.Error()
}

// try registers the slots by one memory path, and transfers bytes into or out of them over
// the rail's connection to itself. If it fails, it undoes everything.
func (p *placer) try(ctx context.Context, r *Ring, rung wire.Rung) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("the trial did not end within %v", trialTime))
	defer cancel()
	d := r.Device
	region, err := d.region(rung)
	if err != nil {
		return err
	}
	access, incoming := p.Access, p.Access&rdma.RemoteWrite != 0
	if incoming {
		// A flush reads from the slots.
		access |= rdma.RemoteRead
	}
	mr, err := p.rail.Register(region, access|rdma.Unordered)
	if rung == wire.RungDMABuf {
		// The registration keeps the memory without the dma-buf.
		err = errors.Join(err, d.Slots.CloseDMABuf())
	}
	r.PayloadMR = mr
	defer func() {
		if err != nil {
			err = errors.Join(err, r.dropRung())
		}
	}()
	if err != nil {
		return err
	}
	if err := d.openPage(p.rail); err != nil {
		return err
	}
	if d.loop, err = p.Loops.open(ctx, p.rail); err != nil {
		return err
	}
	trial := d.tryOutgoing
	if incoming {
		trial = d.tryIncoming
		if p.Placement.FlushAlways || needsFlush(d.gpu.Device()) {
			d.memory.Flush = wire.FlushRead
		}
	}
	if err := trial(ctx, r); err != nil {
		return fmt.Errorf("%w: %w", errTrial, err)
	}
	return nil
}

// dropRung undoes try. It closes the connection first, because the connection could access
// the slots.
func (r *Ring) dropRung() error {
	var errs []error
	if l := r.Device.loop; l != nil {
		errs = append(errs, l.conn.Close())
	}
	if r.PayloadMR != nil {
		errs = append(errs, r.PayloadMR.Close())
	}
	r.Device.loop, r.PayloadMR = nil, nil
	return errors.Join(errs...)
}

// openPage maps and registers the host memory for probes and flushes, once.
func (d *Device) openPage(rail rdma.Rail) (err error) {
	if d.pageMR != nil {
		return nil
	}
	if d.page == nil {
		if d.page, err = unix.Mmap(-1, 0, 3*trialBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return fmt.Errorf("map a page for trials: %w", err)
		}
	}
	d.pageMR, err = rail.Register(rdma.HostRegion(d.page), rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
	return err
}

// trialBytes is how much a probe transfers at each end of the ring.
const trialBytes = 4096

// eachEnd calls try for the first and the last trialBytes of the slots. sent holds new
// random bytes. got and read are cleared memory after sent on the page, into which the
// bytes are returned: got by the GPU's copy or the device's Write, read by the device's
// Read.
func (d *Device) eachEnd(try func(stream *gpu.Stream, at int, sent, got, read []byte) error) (err error) {
	stream, err := d.gpu.NewStream()
	if err != nil {
		return err
	}
	defer func() { err = gpu.WithClose(err, errors.Join(stream.Drain(), stream.Close())) }()
	sent, got, read := d.page[:trialBytes], d.page[trialBytes:2*trialBytes], d.page[2*trialBytes:]
	for _, at := range []int{0, d.Slots.Len() - trialBytes} {
		clear(d.page[trialBytes:])
		if _, err := rand.Read(sent); err != nil {
			return err
		}
		if err := try(stream, at, sent, got, read); err != nil {
			return err
		}
	}
	return nil
}

// readBack makes the rail's device read trialBytes into the last third of the page.
func (d *Device) readBack(ctx context.Context, from uint64, key uint32) error {
	return d.loop.do(ctx, rdma.WR{Op: rdma.OpRead, Local: d.pageMR, Offset: 2 * trialBytes, Len: trialBytes, RemoteAddr: from, RKey: key})
}

// tryIncoming makes the rail's device write both ends of the slots. It reads them back by
// the GPU's copies and by the device.
func (d *Device) tryIncoming(ctx context.Context, r *Ring) error {
	return d.eachEnd(func(stream *gpu.Stream, at int, sent, got, read []byte) error {
		remote, key := r.PayloadMR.Addr()+uint64(at), r.PayloadMR.RKey()
		if err := d.loop.do(ctx, rdma.WR{Op: rdma.OpWrite, Local: d.pageMR, Len: trialBytes, RemoteAddr: remote, RKey: key}); err != nil {
			return fmt.Errorf("write to GPU memory: %w", err)
		}
		if err := d.readBack(ctx, remote, key); err != nil {
			return fmt.Errorf("read from GPU memory: %w", err)
		}
		if err := errors.Join(stream.ToHost(got, d.Slots, at), stream.Wait()); err != nil {
			return err
		}
		if !bytes.Equal(sent, got) {
			return errors.New("what the device wrote is not in GPU memory")
		}
		if !bytes.Equal(sent, read) {
			return errors.New("the device reads other bytes than it wrote")
		}
		return nil
	})
}

// tryOutgoing fills both ends of the slots by the GPU's copies and makes the rail's device
// send them.
func (d *Device) tryOutgoing(ctx context.Context, r *Ring) error {
	return d.eachEnd(func(stream *gpu.Stream, at int, sent, got, _ []byte) error {
		if err := errors.Join(stream.ToDevice(d.Slots, at, sent), stream.Wait()); err != nil {
			return err
		}
		remote, key := d.pageMR.Addr()+trialBytes, d.pageMR.RKey()
		if err := d.loop.do(ctx, rdma.WR{Op: rdma.OpWrite, Local: r.PayloadMR, Offset: at, Len: trialBytes, RemoteAddr: remote, RKey: key}); err != nil {
			return fmt.Errorf("send from GPU memory: %w", err)
		}
		// A completed Write may not have landed yet. It has landed when a later Read is
		// done.
		if err := d.readBack(ctx, remote, key); err != nil {
			return fmt.Errorf("read back what was sent: %w", err)
		}
		if !bytes.Equal(sent, got) {
			return errors.New("the device sends other bytes than are in GPU memory")
		}
		return nil
	})
}

// errNotDirect is the error if GPUDirect is required and no memory path provides it.
func errNotDirect(m *wire.Memory) error {
	return fmt.Errorf("gpudirect is required: %w: %s: %s", rdma.ErrUnsupported, m, m.Why)
}
