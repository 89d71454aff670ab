//go:build linux && cgo

package verbs

/*
#include "shim.h"
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"gdrcp/internal/numa"
	"gdrcp/rdma"
)

// rail is one device used by one session: protection domain, completion queue
// and completion channel.
//
// Locks, in the order in which they are taken: pollMu, conn.mu, mu. pollMu
// guards the C half's polling state, conns and stash.
type rail struct {
	p     *Provider
	api   *C.struct_vb_api
	held  openDevice // closed last
	ctx   *C.struct_abi_context
	c     *C.struct_vb_rail
	cq    *C.struct_abi_cq
	fd    *pollFD
	watch *watch
	dev   rdma.Device
	cfg   rdma.RailConfig
	size  sizes

	pollMu sync.Mutex
	conns  []*conn // by slot
	stash  []rdma.Completion
	comps  []C.struct_vb_comp
	msgs   []byte // Completion.Msg points into it
	spare  *pumpBuffers
	polled uint64 // completions polled so far

	sleeper sleeper
	spinner spinner // used by the goroutine in Wait

	ending atomic.Int32 // conns in endings
	mu     sync.Mutex
	// endings are the conns whose Closed is yet to be delivered.
	endings []*conn
	closed  atomic.Bool     // set with mu held
	life    context.Context // ends on Close
	end     context.CancelFunc
	busy    sync.WaitGroup // running Dials, Accepts and Registers
	// abandoned counts the connections that the kernel has not freed yet, and
	// for which nobody waits. None is added once busy is done.
	abandoned sync.WaitGroup
	live      map[*conn]struct{}
	mrs       map[*mr]struct{}
	berths    berths
}

// sizes are a rail's counts and sizes in terms of the device.
type sizes struct {
	conn       depths // for a Conn of the engine
	near, far  depths // for the ends of a Loopback
	cqe        int
	splitBytes int
	readIn     int
	readOut    int
	// signalBytes is the length from which every work request is signalled, or 0.
	signalBytes int
	siw         bool
}

// depths are the numbers of requests that one queue pair may have outstanding.
type depths struct {
	ops        int // operations, including the greeting
	sends      int // the device's work requests for them
	leastSends int // minimum useful number of sends
	recvs      int
}

// entries is the maximum number of completion queue entries of a queue pair:
// after an error unsignalled work requests complete too.
func (d depths) entries() int { return d.sends + d.recvs }

const (
	// splitBytes is the length of the pieces into which a long access is split: several
	// work requests keep a device's pipeline fuller than one (256 KiB measured best).
	splitBytes = 256 << 10
	// siwSplitBytes is the same for Soft-iWARP, which has no pipeline to fill and
	// completes each work request with an event.
	siwSplitBytes = 1 << 20
	// recvMargin is the number of receives beyond RecvDepth: one for the greeting, and
	// some slack.
	recvMargin = 4
	// maxWriteBytes bounds RailConfig.WriteBytes: lengths are 32 bits wide.
	maxWriteBytes = 1 << 30
	// maxConns is the largest number that fits a work request's id.
	maxConns = 1 << 12
	// siwVendor is the vendor ID of Soft-iWARP, siwZeroCopyBytes its
	// SENDPAGE_THRESH (Linux, drivers/infiniband/sw/siw), one page or more.
	siwVendor        = 0x626d74
	siwZeroCopyBytes = 4096
	// maxReads is how many RDMA Reads may be outstanding on a queue pair.
	maxReads = 4
	// abandonedWait is how long Close waits for the kernel to free abandoned connections.
	abandonedWait = time.Second
)

// Open makes a rail on the named device.
func (p *Provider) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	if err := checkConfig(cfg); err != nil {
		return nil, fmt.Errorf("open rail on %s: %w", device, err)
	}
	d, held, err := p.find(device)
	if err != nil {
		return nil, err
	}
	if !d.Usable() {
		held.all.close()
		return nil, d.Err()
	}
	size, err := p.measure(held.ctx, d, cfg)
	if err != nil {
		held.all.close()
		return nil, &rdma.OpError{Op: "open rail", Device: device, Err: err}
	}
	r := &rail{
		p: p, api: p.api, held: held, ctx: held.ctx, dev: d, cfg: cfg, size: size,
		conns: make([]*conn, cfg.Conns+2*cfg.Loopbacks),
		comps: make([]C.struct_vb_comp, C.VB_BATCH),
		msgs:  make([]byte, C.VB_BATCH*cfg.MsgBytes),
		live:  map[*conn]struct{}{},
		mrs:   map[*mr]struct{}{},
	}
	r.berths.init(cfg)
	r.life, r.end = context.WithCancel(context.Background())
	if err := r.open(); err != nil {
		r.end()
		held.all.close()
		return nil, err
	}
	return r, nil
}

func (r *rail) open() error {
	if err := r.p.padKeys(r); err != nil {
		return err
	}
	rc := C.vb_rail_open(r.api, r.ctx, C.int(r.size.cqe), C.int(r.p.nextVector(r)), C.int(len(r.conns)), C.uint32_t(r.cfg.MsgBytes), &r.c)
	if rc != 0 {
		r.p.unpadKeys(r)
		return r.lockedMemory(&rdma.OpError{Op: "open rail", Device: r.dev.Name, Err: errno(rc)})
	}
	r.cq = C.vb_rail_cq(r.c)
	fd, err := newPollFD(int(C.vb_rail_fd(r.c)), "completion channel")
	if err == nil {
		r.fd = fd
		r.sleeper.init(r)
		r.spinner = newSpinner(r.p.spin)
		r.watch, err = r.p.watchDevice(r)
	}
	if err != nil {
		if r.fd != nil {
			r.fd.close()
		}
		C.vb_rail_close(r.c)
		r.p.unpadKeys(r)
		return &rdma.OpError{Op: "open rail", Device: r.dev.Name, Err: err}
	}
	return nil
}

// nextVector returns the completion vector for a rail. Rails use them in turn,
// so that not all interrupts go to one processor. If a device has more vectors
// than its node has processors, only the first ones are used, because drivers
// (mlx5, irdma) assign those to the node's processors.
func (p *Provider) nextVector(r *rail) int {
	n := int(r.ctx.num_comp_vectors)
	hardware, _ := hardwareOf(filepath.Join(p.sysfs, "class/infiniband", r.dev.Name))
	if near := numa.Numbers(filepath.Join(hardware, "local_cpulist")); len(near) > 0 {
		n = min(n, len(near))
	}
	if n <= 1 {
		return 0
	}
	return int(p.opened.Add(1)-1) % n
}

func checkConfig(cfg rdma.RailConfig) error {
	if cfg.Conns > maxConns || cfg.Loopbacks > (maxConns-cfg.Conns)/2 {
		return fmt.Errorf("check configuration: %d connections and %d to itself, at most %d ends: %w",
			cfg.Conns, cfg.Loopbacks, maxConns, rdma.ErrUnsupported)
	}
	return cfg.Check(maxWriteBytes)
}

// measure fits cfg to the device's limits. The send queue may become shorter than
// SendDepth writes of the longest size need; then Post returns ErrQueueFull earlier. The
// number of receives is promised to the peer, so measure never reduces it.
func (p *Provider) measure(ctx *C.struct_abi_context, d rdma.Device, cfg rdma.RailConfig) (sizes, error) {
	var lim C.struct_vb_limits
	if rc := C.vb_query_device(p.api, ctx, &lim); rc != 0 {
		return sizes{}, fmt.Errorf("query device: %w", errno(rc))
	}
	s := sizes{
		splitBytes: splitBytes,
		readIn:     min(maxReads, int(lim.max_read_in)),
		readOut:    min(maxReads, int(lim.max_read_out)),
	}
	if lim.vendor_id == siwVendor {
		s.siw, s.signalBytes, s.splitBytes = true, siwZeroCopyBytes, siwSplitBytes
	}
	for _, port := range d.Ports {
		var a C.struct_vb_port
		if rc := C.vb_query_port(p.api, ctx, C.int(port.Number), &a); rc == 0 && a.max_msg_bytes > 0 {
			s.splitBytes = min(s.splitBytes, int(a.max_msg_bytes))
		}
	}
	return s, s.fit(cfg, int(lim.max_qp_wr), int(lim.max_cqe))
}

// perWrite returns how many of the device's work requests the longest access
// needs, including the Send that carries an immediate.
func (s *sizes) perWrite(cfg rdma.RailConfig) int {
	return (cfg.WriteBytes+s.splitBytes-1)/s.splitBytes + 1
}

// leastSends returns the minimum useful length of the send queue for depth
// operations: quiet work requests may occupy a quarter of the queue until the
// next signalled one, and the longest access must fit into the rest.
func (s *sizes) leastSends(cfg rdma.RailConfig, depth int) int {
	return max((4*(s.perWrite(cfg)+1)+2)/3, depth+1)
}

func (s *sizes) fit(cfg rdma.RailConfig, maxWR, maxCQE int) error {
	least := s.leastSends(cfg, rdma.LoopbackDepth)
	s.near = depths{ops: rdma.LoopbackDepth + 1, sends: least, leastSends: least, recvs: recvMargin}
	s.far = depths{ops: 1, sends: 1, leastSends: 1, recvs: recvMargin}
	loopbacks := cfg.Loopbacks * (s.near.entries() + s.far.entries())

	least = s.leastSends(cfg, cfg.SendDepth)
	recvs := cfg.RecvDepth + recvMargin
	sends := min(max(cfg.SendDepth*s.perWrite(cfg)+1, least), maxWR, (maxCQE-loopbacks)/cfg.Conns-recvs)
	s.conn = depths{ops: cfg.SendDepth + 1, sends: sends, leastSends: least, recvs: recvs}
	s.cqe = cfg.Conns*s.conn.entries() + loopbacks
	if recvs > maxWR {
		return fmt.Errorf("%d receives a connection, and the device takes %d", recvs, maxWR)
	}
	if sends < least || (cfg.Loopbacks > 0 && s.near.sends > maxWR) {
		return fmt.Errorf("%d connections with %d receives and %d work requests each, and %d to itself, need more completion queue entries than the device's %d, or more than its %d work requests",
			cfg.Conns, recvs, least, cfg.Loopbacks, maxCQE, maxWR)
	}
	return nil
}

// Device describes the device as it was at Open.
func (r *rail) Device() rdma.Device { return r.dev }

// enter begins an operation that Close waits for. At its end the caller calls r.busy.Done.
func (r *rail) enter() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed.Load() {
		return rdma.ErrClosed
	}
	r.busy.Add(1)
	return nil
}

// Close closes conns, then regions, then the queue. If the kernel keeps abandoned
// connections, the queue outlives Close, and is freed with the last of them.
func (r *rail) Close() error {
	r.mu.Lock()
	if r.closed.Swap(true) {
		r.mu.Unlock()
		return nil
	}
	r.mu.Unlock()
	r.end()
	r.fd.wake()
	r.busy.Wait()

	r.mu.Lock()
	conns := make([]*conn, 0, len(r.live))
	for c := range r.live {
		conns = append(conns, c)
	}
	mrs := make([]*mr, 0, len(r.mrs))
	for m := range r.mrs {
		mrs = append(mrs, m)
	}
	r.mu.Unlock()
	var errs []error
	for _, c := range conns {
		errs = append(errs, c.Close())
	}
	for _, m := range mrs {
		errs = append(errs, m.Close())
	}
	r.p.unwatchDevice(r)
	r.fd.close()
	r.sleeper.drop()
	freed := make(chan error, 1)
	go func() {
		r.abandoned.Wait()
		freed <- r.free()
	}()
	select {
	case err := <-freed:
		errs = append(errs, err)
	case <-time.After(abandonedWait):
	}
	return errors.Join(errs...)
}

// free frees the device's objects. Everything else of the rail must have been freed.
func (r *rail) free() error {
	r.pollMu.Lock()
	defer r.pollMu.Unlock()
	var err error
	if rc := C.vb_rail_close(r.c); rc != 0 {
		err = &rdma.OpError{Op: "close rail", Device: r.dev.Name, Err: errno(rc)}
	}
	r.p.unpadKeys(r)
	r.held.all.close()
	return err
}
