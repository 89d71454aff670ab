package xfer

import (
	"cmp"
	"context"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// encodeWish is the body of doorProof, fields as in a hello: which GPU the client is going
// to ask for, so that the server can tell the addresses near to it first. The hello
// decides, and comes when the address is chosen already.
func encodeWish(p ring.Placement) []byte {
	h := wire.Hello{GPU: uint64(p.GPU), GPUName: p.GPUName}
	return h.EncodeGPU()
}

// decodeWish reads the body of doorProof; it may be empty.
func decodeWish(b []byte) (ring.Placement, error) {
	h, err := wire.DecodeGPU(b)
	return ring.PlacementOf(&h), err
}

// distances says of each device that the server listens on how far it is from the
// GPU that a client wishes for, as railRank does. It is nil where any GPU will do,
// or none is wished for, or there is no choice.
func (v *Server) distances(ctx context.Context, wish ring.Placement) map[string]int {
	if !wish.IsOne() || v.cfg.GPUs == nil {
		return nil
	}
	devices, fastest := map[string]*serverListener{}, 0.0
	v.mu.Lock()
	for _, l := range v.listeners {
		if l.provider.Name() == "verbs" && l.err == nil {
			devices[l.device], fastest = l, max(fastest, l.rateGbps)
		}
	}
	v.mu.Unlock()
	if len(devices) < 2 {
		return nil
	}
	at := v.gpuAt(ctx, wish)
	if at == "" {
		return nil
	}
	ranks := make(map[string]int, len(devices))
	for name, l := range devices {
		ranks[name] = railRank(cmp.Or(v.sysfs, sysfs), at, l.pciAddress, l.rateGbps, fastest)
	}
	return ranks
}

// gpuAt is the PCI address of the one GPU that is wished for; empty where there is
// none, which the session then says. To start the driver takes seconds where nothing
// keeps it loaded: a client at the door waits for a part of that, and the start goes
// on for those after it. However many come, one goroutine at most waits for a driver
// that does not answer.
func (v *Server) gpuAt(ctx context.Context, wish ring.Placement) string {
	ctx, cancel := context.WithTimeout(ctx, v.cfg.Timeouts.Handshake/4)
	defer cancel()
	select {
	case v.finding <- struct{}{}:
	case <-ctx.Done():
		return ""
	}
	found := make(chan string, 1)
	go func() {
		defer func() { <-v.finding }()
		found <- pciOf(v.cfg.GPUs, wish)
	}()
	select {
	case at := <-found:
		return at
	case <-ctx.Done():
		return ""
	}
}

// pciOf is the PCI address of the one GPU that is wished for; empty where there is no
// such GPU.
func pciOf(gpus GPUs, wish ring.Placement) string {
	driver, err := gpus()
	if err != nil {
		return ""
	}
	d, err := gpu.Find(driver.Devices(), wish.Wanted())
	if err != nil {
		return ""
	}
	return d.PCIAddress
}
