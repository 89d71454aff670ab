package xfer

import (
	"testing"
	"time"

	"gdrcp/xfer/internal/link"
)

func TestVerbsLead(t *testing.T) {
	for _, c := range []struct {
		atDoor, handshake time.Duration
		addresses         int
		try, all          time.Duration
	}{
		{time.Millisecond, time.Second, 1, 5 * time.Second, 5 * time.Second},
		{time.Millisecond, 10 * time.Second, 0, 5 * time.Second, 5 * time.Second},
		{time.Millisecond, 10 * time.Second, 16, 5 * time.Second, 10 * time.Second},
		{700 * time.Millisecond, 10 * time.Second, 2, 7 * time.Second, 14 * time.Second},
		{time.Minute, time.Second, 1, 10 * time.Second, 10 * time.Second},
		{0, time.Minute, 16, 10 * time.Second, 20 * time.Second},
	} {
		if try, all := verbsLead(c.atDoor, c.addresses, &Options{Timeouts: link.Timeouts{Handshake: c.handshake}}); try != c.try || all != c.all {
			t.Errorf("%+v: %v, %v", c, try, all)
		}
	}
}
