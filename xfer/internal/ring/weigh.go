package ring

import (
	"context"
	"errors"
	"fmt"
	"time"

	"gdrcp/gpu"
	"gdrcp/rdma"

	"golang.org/x/sys/unix"
)

// On some machines, a device and a GPU send each other data across the processor at the
// speed of the bus. On others they reach a small part of that speed, and chunks are
// faster through host memory. Only a trial can tell.
const (
	// weighBytes are carried each way. That takes some ms on a fast bus.
	weighBytes = 32 << 20
	// weighPieceBytes are carried at a time, or a chunk where a chunk is smaller.
	weighPieceBytes = 4 << 20
	// weighRounds is how many rounds are run. The fastest counts, because others use
	// the machine too.
	weighRounds = 3
	// weighTime ends the rounds of a way, also within a round.
	weighTime = time.Second
)

// errSlower says that a rung works and is slower than staging.
var errSlower = errors.New("slower than staging")

// slower is an errSlower with the speeds.
type slower struct{ speeds string }

func (e *slower) Error() string { return e.speeds }

func (e *slower) Unwrap() error { return errSlower }

// isFar reports whether the way from the rail's device to the GPU leads through the
// processor. For a device in software the way is unknown, and nothing depends on it.
func (d *Device) isFar() bool { return d.path == gpu.PHB || d.path == gpu.SYS }

// weigh compares the rung that was just tried with staging, where the way is far and
// the placement allows staging. It returns both speeds as text for people. Where
// staging is faster or a transfer fails, weigh undoes the rung, and the error says why.
func (p *placer) weigh(ctx context.Context, r *Ring) (speeds string, err error) {
	d := r.Device
	if p.Placement.Direct || !d.isFar() {
		return "", nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, trialTime, fmt.Errorf("the trial did not end within %v", trialTime))
	defer cancel()
	w := newScales(r)
	if failed := w.open(p.rail); failed != nil {
		// Staging would need as much memory and more.
		speeds = fmt.Sprintf("not held against staging over %s: %s", d.path, reasonOf(failed))
	} else if speeds, err = w.compare(ctx, p.Access&rdma.RemoteWrite != 0); err != nil {
		// The rung's connection may be about to reach the memory of the scales.
		err = errors.Join(err, r.dropRung())
	}
	if closing := w.close(); closing != nil {
		err = gpu.WithClose(errors.Join(err, r.dropRung()), closing)
	}
	return speeds, err
}

// scales carry bytes over the rail's connection to itself, between host memory and the
// slots, both directly and with staging between. The first piece of mem is the far end
// of each transfer. The rest of mem is where pieces are staged.
type scales struct {
	ring               *Ring
	pieceBytes, pieces int

	mem    []byte
	mr     rdma.MR
	pinned *gpu.Pinned
	stream *gpu.Stream
	marks  [2]*gpu.Mark
}

func newScales(r *Ring) *scales {
	n := min(r.SlotBytes, weighPieceBytes)
	return &scales{ring: r, pieceBytes: n, pieces: weighBytes / n}
}

// open takes the memory, the registration and the GPU's objects that close gives back.
func (w *scales) open(rail rdma.Rail) (err error) {
	d := w.ring.Device
	if w.mem, err = Map((1 + w.pieces) * w.pieceBytes); err != nil {
		return fmt.Errorf("map memory to stage in: %w", err)
	}
	if w.mr, err = rail.Register(rdma.HostRegion(w.mem), rdma.LocalWrite|rdma.RemoteWrite); err != nil {
		return err
	}
	if w.pinned, err = d.gpu.Pin(w.mem); err != nil {
		return err
	}
	if w.stream, err = d.gpu.NewStream(); err != nil {
		return err
	}
	for i := range w.marks {
		if w.marks[i], err = d.gpu.NewMark(); err != nil {
			return err
		}
	}
	return nil
}

// close gives back what open took. No transfer may be under way. close waits for what
// the GPU still does.
func (w *scales) close() error {
	var errs []error
	if w.stream != nil {
		errs = append(errs, w.stream.Drain(), w.stream.Close())
	}
	for _, m := range w.marks {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	if w.pinned != nil {
		errs = append(errs, w.pinned.Close())
	}
	if w.mr != nil {
		errs = append(errs, w.mr.Close())
	}
	// A GPU that hangs may still use this memory.
	if w.mem != nil && w.ring.Device.gpu.Lost() == nil {
		errs = append(errs, unix.Munmap(w.mem))
	}
	return errors.Join(errs...)
}

// compare returns both speeds as text. Where staging is faster, the error is a slower.
func (w *scales) compare(ctx context.Context, incoming bool) (speeds string, err error) {
	straight, staged := w.sendStraight, w.sendStaged
	if incoming {
		straight, staged = w.receiveStraight, w.receiveStaged
	}
	direct, err := w.speed(ctx, straight)
	if err != nil {
		return "", fmt.Errorf("%w: %w", errTrial, err)
	}
	other, err := w.speed(ctx, staged)
	if err != nil {
		return "", fmt.Errorf("%w: stage: %w", errTrial, err)
	}
	speeds = fmt.Sprintf("%.0f MiB/s over %s, staged %.0f MiB/s", direct/(1<<20), w.ring.Device.path, other/(1<<20))
	if direct < other {
		return "", &slower{speeds}
	}
	return speeds, nil
}

// way carries all pieces, or as many as it has time for, and returns how many.
type way func(ctx context.Context, until time.Time) (carried int, err error)

// speed is that of the fastest round, in bytes per second.
func (w *scales) speed(ctx context.Context, carry way) (best float64, err error) {
	until := time.Now().Add(weighTime)
	for range weighRounds {
		start := time.Now()
		n, err := carry(ctx, until)
		if err != nil {
			return 0, err
		}
		best = max(best, float64(n*w.pieceBytes)/time.Since(start).Seconds())
		if time.Now().After(until) {
			break
		}
	}
	return best, nil
}

// each calls carry for the pieces, at least for one.
func (w *scales) each(until time.Time, carry func(i int) error) (carried int, err error) {
	for i := range w.pieces {
		if i > 0 && time.Now().After(until) {
			return i, nil
		}
		if err := carry(i); err != nil {
			return i, err
		}
	}
	return w.pieces, nil
}

// slotsAt is where piece i lies in the slots, which may have room for only some of the
// pieces.
func (w *scales) slotsAt(i int) int {
	return i % (w.ring.Device.Slots.Len() / w.pieceBytes) * w.pieceBytes
}

// stagedAt is where piece i is staged.
func (w *scales) stagedAt(i int) int { return (1 + i) * w.pieceBytes }

// write has the device carry a piece within the rail.
func (w *scales) write(ctx context.Context, from rdma.MR, offset int, to rdma.MR, toOffset int) error {
	return w.ring.Device.loop.do(ctx, rdma.WR{
		Op: rdma.OpWrite, Local: from, Offset: offset, Len: w.pieceBytes, RemoteAddr: to.Addr() + uint64(toOffset), RKey: to.RKey(),
	})
}

func (w *scales) receiveStraight(ctx context.Context, until time.Time) (int, error) {
	return w.each(until, func(i int) error { return w.write(ctx, w.mr, 0, w.ring.PayloadMR, w.slotsAt(i)) })
}

// receiveStaged has the GPU copy the pieces that have come while more come.
func (w *scales) receiveStaged(ctx context.Context, until time.Time) (int, error) {
	n, err := w.each(until, func(i int) error {
		if err := w.write(ctx, w.mr, 0, w.mr, w.stagedAt(i)); err != nil {
			return err
		}
		return w.stream.ToDevice(w.ring.Device.Slots, w.slotsAt(i), w.staged(i))
	})
	if err != nil {
		return n, err
	}
	return n, w.stream.Wait()
}

func (w *scales) sendStraight(ctx context.Context, until time.Time) (int, error) {
	return w.each(until, func(i int) error { return w.write(ctx, w.ring.PayloadMR, w.slotsAt(i), w.mr, 0) })
}

// sendStaged has the GPU copy the next piece while the device sends one.
func (w *scales) sendStaged(ctx context.Context, until time.Time) (int, error) {
	if err := w.fetch(0); err != nil {
		return 0, err
	}
	n, err := w.each(until, func(i int) error {
		if i+1 < w.pieces {
			if err := w.fetch(i + 1); err != nil {
				return err
			}
		}
		if err := w.marks[i%2].Wait(); err != nil {
			return err
		}
		return w.write(ctx, w.mr, w.stagedAt(i), w.mr, 0)
	})
	if err != nil {
		return n, err
	}
	return n, w.stream.Wait()
}

// fetch begins to copy a piece from the slots.
func (w *scales) fetch(i int) error {
	if err := w.stream.ToHost(w.staged(i), w.ring.Device.Slots, w.slotsAt(i)); err != nil {
		return err
	}
	return w.stream.Record(w.marks[i%2])
}

// staged is the memory of piece i.
func (w *scales) staged(i int) []byte { return w.mem[w.stagedAt(i):][:w.pieceBytes] }
