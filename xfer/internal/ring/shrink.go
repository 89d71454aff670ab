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

// Other devices reach GPU memory through a window on the bus (BAR1). The window may be
// smaller than a ring. A smaller ring that the device reaches is worth more than a
// large ring that is staged, down to these sizes. Below them, chunks wait for slots.
const (
	leastDirectSlots = 4
	leastDirectBytes = 16 << 20
)

// directSizes returns the numbers of slots to try, each half of the one before. It
// leaves out sizes beyond the free bytes of the window that the driver tells, unless
// that leaves none to try.
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

// isTooLarge reports whether a smaller region may work where one was refused. Kernels
// and drivers return any of these errors for a full window.
func isTooLarge(err error) bool {
	return errors.Is(err, gpu.ErrOutOfMemory) || errors.Is(err, unix.ENOMEM) || errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOSPC)
}

// peermemRefuses reports whether nvidia-peermem, which is there, did not take a region. It has
// but one answer to the kernel, whatever the driver told it ("not mine", nv_mem_acquire in
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

// errNoSlots says that the GPU did not give memory for slots, so that no rung can have it.
var errNoSlots = errors.New("no GPU memory for the slots")

// resize replaces the device memory by memory for another number of slots. After an error,
// which is an errNoSlots, there is none, and resize may be called again.
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

// tryFewer tries a rung with as many slots as the device takes, and says why the device
// takes no more.
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
