package wire

import (
	"fmt"
	"time"
)

// Cost is the cost of a copy, or a bench, for one end.
type Cost struct {
	// CPU is user and system time. At a client it is the process's since the copy began.
	CPU time.Duration
	// Shared means that CPU is an estimate: the process had other sessions meanwhile, and
	// its processor time was divided in proportion to their payload.
	Shared bool
	// Slots, Wire, Disk, Digests and Sync divide the session's time. The time of
	// concurrent workers is divided by their number.
	Slots, Wire, Disk, Digests, Sync time.Duration
}

// maxCost bounds each time of a Cost: nine years. A sum of two still fits in a Duration.
const maxCost = time.Duration(1 << 58)

// The tags of MsgCost.
const (
	tagCostCPU     = 1 // nanoseconds, like the others except tagCostShared
	tagCostShared  = 2 // 1
	tagCostSlots   = 3
	tagCostWire    = 4
	tagCostDisk    = 5
	tagCostDigests = 6
	tagCostSync    = 7
)

// Encode returns the body of MsgCost.
func (c *Cost) Encode() []byte {
	var w Writer
	for tag := byte(tagCostCPU); tag <= tagCostSync; tag++ {
		if t := c.time(tag); t != nil && *t > 0 {
			w.Uint(tag, uint64(min(*t, maxCost)))
		}
	}
	if c.Shared {
		w.Uint(tagCostShared, 1)
	}
	return w.Buf
}

// DecodeCost is Encode's inverse. The result is only displayed: this end does not act on
// it.
func DecodeCost(b []byte) (c Cost, err error) {
	r := Reader{b}
	for {
		tag, v, ok, err := r.Next()
		if err != nil || !ok {
			return c, err
		}
		if err := c.field(tag, v); err != nil {
			return Cost{}, err
		}
	}
}

func (c *Cost) field(tag byte, v []byte) error {
	t := c.time(tag)
	if t == nil && tag != tagCostShared {
		return unknownField(tag)
	}
	u, err := DecodeUint(tag, v)
	if err != nil {
		return err
	}
	if u > uint64(maxCost) || tag == tagCostShared && u > 1 {
		return fmt.Errorf("%w: field %#x of a cost is %d, which is out of range", ErrProtocol, tag, u)
	}
	if t == nil {
		c.Shared = u == 1
		return nil
	}
	*t = time.Duration(u)
	return nil
}

// time returns the field with the given tag. It is nil for other fields.
func (c *Cost) time(tag byte) *time.Duration {
	switch tag {
	case tagCostCPU:
		return &c.CPU
	case tagCostSlots:
		return &c.Slots
	case tagCostWire:
		return &c.Wire
	case tagCostDisk:
		return &c.Disk
	case tagCostDigests:
		return &c.Digests
	case tagCostSync:
		return &c.Sync
	}
	return nil
}
