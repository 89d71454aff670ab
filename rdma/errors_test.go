package rdma

import (
	"errors"
	"fmt"
	"syscall"
	"testing"
)

func TestFaultOf(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want Fault
	}{
		{errors.New("something"), FaultUnknown},
		{&OpError{Fault: FaultPath}, FaultPath},
		{&OpError{Fault: FaultDevice, Err: ErrAccess}, FaultAccess}, // a device reports the peer's mistake
		{fmt.Errorf("%w: malformed", ErrNotGdrcp), FaultAccess},
		{fmt.Errorf("wrapped: %w", &OpError{Err: ErrDisconnected}), FaultPeer},
		{&OpError{Err: fmt.Errorf("%w: %w", ErrDisconnected, syscall.ETIMEDOUT)}, FaultPath},
		{&OpError{Err: fmt.Errorf("%w: %w", ErrDisconnected, syscall.ECONNRESET)}, FaultPeer},
		{&OpError{Fault: FaultAccess, Err: ErrDisconnected}, FaultAccess},
	} {
		if got := FaultOf(tc.err); got != tc.want {
			t.Errorf("%v: %v, want %v", tc.err, got, tc.want)
		}
	}
}
