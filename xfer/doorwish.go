package xfer

import (
	"cmp"
	"context"
	"time"

	"gdrcp/gpu"
	"gdrcp/internal/numa"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// wish is what a client requests at the door about its slots at the server: where they are to be.
// The hello decides that, but it comes after the address is chosen.
func (o *Options) wish() wire.DoorWish {
	return wire.DoorWish{GPU: o.remote.GPU, Name: o.remote.GPUName}
}

// gpuFinder finds the GPU that a client requests at the door. The server can then announce the
// addresses near to that GPU first.
type gpuFinder struct {
	gpus GPUs
	// wait is how long a client waits for the driver.
	wait time.Duration
	// finding has room for the one goroutine that asks the driver for a GPU: see at.
	finding chan struct{}
	sysfs   string // replaces the path of the kernel's sysfs, or is empty
}

func newGPUFinder(gpus GPUs, wait time.Duration) *gpuFinder {
	return &gpuFinder{gpus: gpus, wait: wait, finding: make(chan struct{}, 1)}
}

// distances returns, for each device that the server listens on, its distance from the GPU that a
// client requests, as railRank computes it. It is nil if any GPU will do, if the client requests
// none, or if there is no choice of devices.
func (f *gpuFinder) distances(ctx context.Context, w wire.DoorWish, devices []door.Device) map[string]int {
	wish := ring.Placement{GPU: w.GPU, GPUName: w.Name}
	if !wish.IsOne() || f.gpus == nil || len(devices) < 2 {
		return nil
	}
	at := f.at(ctx, wish)
	if at == "" {
		return nil
	}
	fastest := 0.0
	for _, d := range devices {
		fastest = max(fastest, d.RateGbps)
	}
	ranks := make(map[string]int, len(devices))
	for _, d := range devices {
		ranks[d.Name] = railRank(cmp.Or(f.sysfs, numa.Sysfs), at, d.PCIAddress, d.RateGbps, fastest)
	}
	return ranks
}

// at returns the PCI address of the one GPU that a client requests. It is empty if there is no such
// GPU; the session then reports that. If nothing keeps the driver loaded, its start takes seconds.
// A client at the door waits for a part of that, and the start continues for later clients. However
// many clients connect, at most one goroutine waits for a driver that does not answer.
func (f *gpuFinder) at(ctx context.Context, wish ring.Placement) string {
	ctx, cancel := context.WithTimeout(ctx, f.wait)
	defer cancel()
	select {
	case f.finding <- struct{}{}:
	case <-ctx.Done():
		return ""
	}
	found := make(chan string, 1)
	go func() {
		defer func() { <-f.finding }()
		found <- pciOf(f.gpus, wish)
	}()
	select {
	case at := <-found:
		return at
	case <-ctx.Done():
		return ""
	}
}

// pciOf returns the PCI address of the one GPU that a client requests. It is empty if there is no
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
