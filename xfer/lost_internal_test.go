package xfer

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
)

// onePathGone is a server's provider. One of the two queue pairs of its session gets no more
// answers, as when a network spreads them over several paths and one of these fails. The other
// still works, and the client notices nothing.
type onePathGone struct {
	rdma.Provider
	mu    sync.Mutex
	conns map[rdma.Rail][]rdma.Conn
}

func (p *onePathGone) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	r, err := p.Provider.Open(device, cfg)
	if err != nil {
		return nil, err
	}
	return &pathRail{Rail: r, p: p}, nil
}

func (p *onePathGone) Listen(addr netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	l, err := p.Provider.Listen(addr, w)
	return pathListener{l, p}, err
}

type pathListener struct {
	rdma.Listener
	p *onePathGone
}

func (l pathListener) Accept(ctx context.Context) (rdma.Request, error) {
	req, err := l.Listener.Accept(ctx)
	if err != nil {
		return nil, err
	}
	return pathRequest{req, l.p}, nil
}

type pathRequest struct {
	rdma.Request
	p *onePathGone
}

func (q pathRequest) Accept(ctx context.Context, rail rdma.Rail) (rdma.Conn, error) {
	c, err := q.Request.Accept(ctx, rail.(*pathRail).Rail)
	if err == nil {
		q.p.mu.Lock()
		q.p.conns[rail] = append(q.p.conns[rail], c)
		q.p.mu.Unlock()
	}
	return c, err
}

type pathRail struct {
	rdma.Rail
	p    *onePathGone
	told bool
}

// Wait reports the end of the second queue pair after a chunk has arrived.
func (r *pathRail) Wait(ctx context.Context, cs []rdma.Completion) (int, error) {
	n, err := r.Rail.Wait(ctx, cs)
	r.p.mu.Lock()
	defer r.p.mu.Unlock()
	if all := r.p.conns[r]; n > 0 && cs[0].Kind == rdma.Immediate && len(all) == 2 && !r.told {
		r.told = true
		cs[0] = rdma.Completion{Kind: rdma.Closed, Conn: all[1], Err: &rdma.OpError{
			Op: "write to", Device: "mlx5_0", Fault: rdma.FaultPath, Err: errors.New("the peer's device stopped answering"),
		}}
	}
	return n, err
}

// A connection is lost, whichever end notices it first: if the server reports it to the client over
// a remaining connection, the client tries again.
func TestLossThatOnlyTheServerSees(t *testing.T) {
	t.Parallel()
	w := byTCP()
	w.provider = &onePathGone{Provider: tcp.New(), conns: make(map[rdma.Rail][]rdma.Conn)}
	_, addr, _ := w.serve(t)
	src := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(src, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	o := w.options()
	o.QPs, o.Slots, o.ChunkBytes, o.Tries, o.Tally = 2, 4, 1<<20, NewTries(), new(Tally)
	c := &Client{TCP: tcp.New()}
	_, err := c.Push(t.Context(), []string{src}, Endpoint{Host: addr.Addr().String(), Port: addr.Port(), Key: testKey}, "f", *o)
	if err == nil {
		t.Fatal("the copy succeeded")
	}
	if !o.Tries.MayGoOn(err) {
		t.Errorf("no other try after: %v", err)
	}
}
