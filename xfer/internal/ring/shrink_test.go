package ring

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gdrcp/gpu"
	"gdrcp/rdma"

	"golang.org/x/sys/unix"
)

func TestDirectSizes(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		slots, slotBytes int
		freeBytes        int64
		want             []int
	}{
		{256, 4 * mib, -1, []int{256, 128, 64, 32, 16, 8, 4}},
		{257, 4 * mib, 1 << 40, []int{257, 128, 64, 32, 16, 8, 4}},
		{256, 4 * mib, 256 * mib, []int{64, 32, 16, 8, 4}},
		{256, 4 * mib, 256*mib - 1, []int{32, 16, 8, 4}},
		{256, 4 * mib, 0, []int{256, 128, 64, 32, 16, 8, 4}}, // the driver's value is ignored
		{16, 64 * mib, -1, []int{16, 8, 4}},
		{256, mib, -1, []int{256, 128, 64, 32, 16}},
		{16, mib, -1, []int{16}},
		{3, 64 * mib, 64 * mib, []int{3}},
		{1, mib, 0, []int{1}},
	} {
		if got := directSizes(tc.slots, tc.slotBytes, tc.freeBytes); !slices.Equal(got, tc.want) {
			t.Errorf("%d slots of %d bytes, %d free: %v, want %v", tc.slots, tc.slotBytes, tc.freeBytes, got, tc.want)
		}
	}
}

func TestTooLarge(t *testing.T) {
	for err, want := range map[error]bool{
		&rdma.OpError{Op: "register", Err: unix.ENOMEM}:      true,
		&rdma.OpError{Op: "register", Err: unix.ENOSPC}:      true,
		&rdma.OpError{Op: "register", Err: unix.EINVAL}:      true,
		&gpu.Error{Op: "export", Code: 2}:                    true,
		&rdma.OpError{Op: "register", Err: unix.EFAULT}:      false,
		&rdma.OpError{Op: "register", Err: unix.EOPNOTSUPP}:  false,
		fmt.Errorf("%w: %w", errTrial, errors.New("a time")): false,
	} {
		if isTooLarge(err) != want {
			t.Errorf("%v: %v", err, !want)
		}
	}
}
