package tcp

import (
	"context"
	"errors"

	"gdrcp/rdma"
)

// Loopback connects two Conns of the rail through a stream within the process.
func (r *rail) Loopback(ctx context.Context) (rdma.Conn, error) {
	c, err := r.loopback(ctx)
	if err != nil {
		return nil, &rdma.OpError{Op: "connect to itself", Device: deviceName, Err: err}
	}
	return c, nil
}

func (r *rail) loopback(ctx context.Context) (*conn, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	if err := r.reserve(near); err != nil {
		return nil, err
	}
	dialled, accepted := newPipeEnds()
	other, err := r.adopt(accepted, far, nil)
	if err != nil {
		r.unreserve(near)
		return nil, errors.Join(err, dialled.Close())
	}
	c, err := r.adopt(dialled, near, other)
	if err != nil {
		return nil, errors.Join(err, other.Close())
	}
	return c, nil
}
