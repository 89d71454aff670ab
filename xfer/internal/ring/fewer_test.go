//go:build linux && cgo

package ring

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// narrow is a rail that limits the bytes of one registration, and of all together.
type narrow struct {
	rdma.Rail
	once, all int
	refusal   error
	has       *int
}

func (n narrow) Register(what rdma.Region, access rdma.Access) (rdma.MR, error) {
	if what.Len > n.once || *n.has+what.Len > n.all {
		return nil, &rdma.OpError{Op: "register memory", Err: n.refusal}
	}
	mr, err := n.Rail.Register(what, access)
	if err == nil {
		*n.has += what.Len
	}
	return narrowMR{mr, what.Len, n.has}, err
}

type narrowMR struct {
	rdma.MR
	bytes int
	has   *int
}

func (m narrowMR) Close() error {
	*m.has -= m.bytes
	return m.MR.Close()
}

// If the device refuses a ring, a smaller one is made, down to 2 slots, if the limit on
// locked memory is the reason or the session accepts a ring of any size. Partial
// registrations of a larger one are undone.
func TestRefusedRings(t *testing.T) {
	many := 100 * testSlotBytes
	for name, c := range map[string]struct {
		slots, once, all int
		refusal          error
		shrinks          bool
		want             int // slots, or 0 for an error
	}{
		"taken":                         {16, many, many, unix.EIO, true, 16},
		"limit on locked memory":        {16, many, 5 * testSlotBytes, rdma.ErrLockedMemory, false, 4},
		"limit that headers exceed":     {16, many, 4*testSlotBytes + 10, rdma.ErrLockedMemory, false, 2},
		"size cap, others to try":       {16, 5 * testSlotBytes, many, unix.EINVAL, false, 0},
		"size cap, none to try":         {17, 5 * testSlotBytes, many, unix.EINVAL, true, 4},
		"out of memory, none to try":    {16, many, 2*testSlotBytes + 2*wire.HeaderStride, unix.ENOMEM, true, 2},
		"nothing":                       {16, 0, many, unix.EIO, true, 0},
		"nothing but a limit":           {16, 0, many, rdma.ErrLockedMemory, false, 0},
		"a ring of one does not shrink": {1, 0, many, rdma.ErrLockedMemory, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			has := 0
			r, err := placed(t, func(rail rdma.Rail) rdma.Rail { return narrow{rail, c.once, c.all, c.refusal, &has} },
				Config{Slots: c.slots, SlotBytes: testSlotBytes, Access: rdma.LocalRead, Shrinks: c.shrinks})
			if c.want == 0 {
				if !errors.Is(err, c.refusal) {
					t.Fatalf("got %v, want %v", err, c.refusal)
				}
				return
			}
			if err != nil || r.Slots != c.want || r.PayloadMR.Len() != c.want*testSlotBytes {
				t.Fatalf("%d slots, %v, want %d", r.Slots, err, c.want)
			}
			if registered := r.PayloadMR.Len() + r.HeaderMR.Len(); has != registered {
				t.Errorf("%d bytes are registered, and %d are the ring's", has, registered)
			}
			isFull := c.want == c.slots
			if isFull != (r.Fewer == nil) || !isFull && (!errors.Is(r.Fewer, c.refusal)) {
				t.Errorf("fewer for %v", r.Fewer)
			}
		})
	}
}
