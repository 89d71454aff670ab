package ring

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sys/unix"
)

// Other devices access GPU memory through a window on the bus (BAR1). The window may be
// smaller than a ring. A smaller ring that the device accesses directly is better than a
// large ring that is staged, down to these sizes. Below them, chunks wait for slots.
const (
	leastDirectSlots = 4
	leastDirectBytes = 16 << 20
)

// directSizes returns the numbers of slots to try, each half of the previous one. It omits
// sizes that exceed the free size of the window according to the driver, unless none would
// remain.
func directSizes(slots, slotBytes int, freeBytes int64) []int {
	sizes := []int{slots}
	for n := slots / 2; n >= leastDirectSlots && n*slotBytes >= leastDirectBytes; n /= 2 {
		sizes = append(sizes, n)
	}
	for i, n := range sizes {
		if freeBytes < 0 || int64(n)*int64(slotBytes) <= freeBytes {
			return sizes[i:]
		}
	}
	return sizes
}

// isTooLarge reports whether a smaller region may succeed after this error. Kernels and
// drivers return any of these errors for a full window.
func isTooLarge(err error) bool {
	return errors.Is(err, gpu.ErrOutOfMemory) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC)
}

// peermemRefuses reports whether nvidia-peermem is loaded but did not accept a region.
// Whatever the driver's error, it only answers the kernel "not mine" (nv_mem_acquire in
// nvidia-peermem.c), and the kernel then tries to pin the address itself: EFAULT.
func (p *placer) peermemRefuses(rung wire.Rung, err error) bool {
	if rung != wire.RungPeermem || !errors.Is(err, unix.EFAULT) {
		return false
	}
	for _, module := range []string{"nvidia_peermem", "nv_peer_mem"} {
		if _, err := os.Stat(filepath.Join(p.Sysfs, "module", module)); err == nil {
			return true
		}
	}
	return false
}

// errNoSlots means that the GPU did not allocate memory for slots, so no memory path can
// work.
var errNoSlots = errors.New("no GPU memory for the slots")

// resize replaces the device memory with memory for another number of slots. After an
// error, which is an errNoSlots, there is none, and resize may be called again.
func (r *Ring) resize(slots int) error {
	d := r.Device
	if d.Slots != nil && r.Slots == slots {
		return nil
	}
	if d.Slots != nil {
		err := d.Slots.Close()
		d.Slots = nil
		if err != nil {
			return fmt.Errorf("%w: %w", errNoSlots, unsupported(err))
		}
	}
	if err := d.alloc(slots, r.SlotBytes); err != nil {
		return fmt.Errorf("%w: %w", errNoSlots, err)
	}
	r.Slots = slots
	return nil
}

// tryFewer tries a memory path with as many slots as the device accepts. why is the reason
// if these are fewer than slots.
func (p *placer) tryFewer(ctx context.Context, r *Ring, rung wire.Rung, slots int) (why string, err error) {
	free := r.Device.gpu.Device().BAR1FreeBytes
	sizes := directSizes(slots, r.SlotBytes, free)
	var refused error
	for _, n := range sizes {
		if err := r.resize(n); err != nil {
			return "", err
		}
		err := p.try(ctx, r, rung)
		switch {
		case err == nil && n == slots:
			return "", nil
		case err == nil && refused == nil:
			return fmt.Sprintf("%d slots, not %d: the GPU's window for other devices (BAR1) has %d MiB free", n, slots, free>>20), nil
		case err == nil:
			return fmt.Sprintf("%d slots, not %d: %s: %s", n, slots, rung, reasonOf(refused)), nil
		case refused == nil:
			refused = err
		}
		if !isTooLarge(err) && !p.peermemRefuses(rung, err) || ctx.Err() != nil {
			break
		}
	}
	return "", refused
}
