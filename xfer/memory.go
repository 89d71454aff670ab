package xfer

import (
	"fmt"
	"strconv"

	"gdrcp/gpu"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// GPUs opens the GPU driver. After the first time it is cheap and gives the same result. Nil stands
// for a program that lends no GPU memory.
type GPUs = ring.GPUs

// Memory is where one end has its slots.
type Memory = wire.Memory

// Rung is a memory path: how bytes get between the wire and a slot.
type Rung = wire.Rung

// The memory paths, best first, and host memory besides.
const (
	RungDMABuf  = wire.RungDMABuf
	RungPeermem = wire.RungPeermem
	RungStaged  = wire.RungStaged
	RungHost    = wire.RungHost
)

// Flush is how a device's writes become visible to the GPU's readers.
type Flush = wire.Flush

// The methods to flush.
const (
	FlushNone = wire.FlushNone
	FlushRead = wire.FlushRead
)

// parseGPU parses the word of --gpu: "off" (or ""), "auto", an index or another name of a GPU. It
// sets nothing else in the placement.
func parseGPU(word string) (p ring.Placement, err error) {
	switch word {
	case "", "off":
		return p, nil
	case "auto":
		p.GPU = wire.GPUAuto
		return p, nil
	}
	n, err := strconv.Atoi(word)
	if err == nil && n >= 0 && n < MaxGPUs {
		p.GPU = wire.GPUFirst + wire.GPUWish(n)
		return p, nil
	}
	if err == nil || gpu.CheckName(word) != nil {
		return p, fmt.Errorf("%w: GPU %q; known are off, auto, and an index, UUID or PCI address as `gdrcp devices` shows it", ErrUsage, word)
	}
	return ring.Placement{GPU: wire.GPUNamed, GPUName: word}, nil
}

// CheckGPU checks a word for Options.GPU and RemoteGPU. The error is ErrUsage.
func CheckGPU(word string) error {
	_, err := parseGPU(word)
	return err
}

// placements returns where the two ends must have their slots.
func (o *Options) placements() (local, remote ring.Placement, err error) {
	if local, err = parseGPU(o.GPU); err != nil {
		return local, remote, err
	}
	if remote, err = parseGPU(o.RemoteGPU); err != nil {
		return local, remote, err
	}
	switch o.GPUFlush {
	case "", "auto":
	case "always":
		local.FlushAlways = true
	default:
		return local, remote, fmt.Errorf("%w: flush %q; known are auto, always", ErrUsage, o.GPUFlush)
	}
	local.Direct = o.Require == "gpudirect"
	remote.FlushAlways, remote.Direct = local.FlushAlways, local.Direct
	if local.Direct && local.GPU == wire.GPUOff && remote.GPU == wire.GPUOff {
		return local, remote, fmt.Errorf("%w: gpudirect is required, and no end is to use a GPU (--gpu, --remote-gpu)", ErrUsage)
	}
	if local.Direct && o.Transport == "tcp" {
		return local, remote, fmt.Errorf("%w: gpudirect is required and tcp was asked for", ErrUsage)
	}
	return local, remote, nil
}

// needsVerbs reports whether the options rule out TCP.
func (o *Options) needsVerbs() bool { return o.Require == "verbs" || o.Require == "gpudirect" }
