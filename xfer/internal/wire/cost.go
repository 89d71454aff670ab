package wire

import (
	"fmt"
	"time"
)

// Cost is what a copy, or a bench, cost one end.
type Cost struct {
	// CPU is processor time, of user and kernel. At a client it is the process's since
	// the copy began.
	CPU time.Duration
	// Shared says that CPU is an estimate: the process had other sessions meanwhile, and
	// its processor time was divided by their payload.
	Shared bool
}

// maxCost bounds each time of a Cost: nine years. A sum of two still fits a Duration.
const maxCost = time.Duration(1 << 58)

// The tags of MsgCost.
const (
	tagCostCPU    = 1 // nanoseconds
	tagCostShared = 2 // 1
)

// Encode returns the body of MsgCost.
func (c *Cost) Encode() []byte {
	var w Writer
	w.Uint(tagCostCPU, uint64(min(max(c.CPU, 0), maxCost)))
	if c.Shared {
		w.Uint(tagCostShared, 1)
	}
	return w.Buf
}

// DecodeCost is Encode's inverse. What it returns is for people: this end does not act on
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
	switch tag {
	case tagCostCPU, tagCostShared:
	default:
		return unknownField(tag)
	}
	u, err := DecodeUint(tag, v)
	if err != nil {
		return err
	}
	if u > uint64(maxCost) || tag == tagCostShared && u > 1 {
		return fmt.Errorf("%w: field %#x of a cost is %d, which is out of range", ErrProtocol, tag, u)
	}
	switch tag {
	case tagCostCPU:
		c.CPU = time.Duration(u)
	case tagCostShared:
		c.Shared = u == 1
	}
	return nil
}
