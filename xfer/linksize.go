package xfer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gdrcp/rdma"
)

const (
	// fastGbps and veryFastGbps are the rates above which one queue pair, and above which two, may
	// not fill a link: a device processes each with one of its engines.
	fastGbps, veryFastGbps = 50, 150
	// mostDefaultQPs is the most queue pairs that a link gets unless the user chooses.
	mostDefaultQPs = 4
	// mostDefaultChunkBytes is the largest slot: the size of a slot if the largest ring has the
	// most slots.
	mostDefaultChunkBytes = MaxRingBytes / MaxSlots
	// heldSeconds is how long a slot is assumed to be in use: its way there, the check, the write,
	// and its way back. The ring must hold what the links carry in that time. A device and a page
	// cache need 2 ms; the rest is a reserve for disks and pauses.
	heldSeconds = 5e-3
	// nearRoundTrip is the longest round trip to the server that heldSeconds has room for.
	nearRoundTrip = 500 * time.Microsecond
	// farGbps is the assumed rate of a path if nothing is known.
	farGbps = 10
	// windowBytes is how much one TCP connection has in flight at most: Linux uses half of a
	// receive buffer of 6 MiB for the window (tcp(7), tcp_rmem and tcp_adv_win_scale).
	windowBytes = 3 << 20
	// mostFarQPs is how many TCP connections a link to a distant server gets.
	mostFarQPs = 8
)

// linkSizes says which sizes of a link follow the path, and its assumed rate.
type linkSizes struct {
	qps, slots bool
	gbps       float64
}

// complete fills in defaults. Those of the ring depend on the local devices that may carry the
// copy.
func (c *Client) complete(o *Options) {
	o.follows = linkSizes{o.QPs == 0, o.Slots == 0, 0}
	if (o.QPs == 0 || o.Slots == 0) && o.Transport != "tcp" && c.Verbs != nil {
		o.sizeFor(c.railDevices(o))
	}
	o.complete()
}

// railDevices are the RDMA devices that may carry the copy, the fastest first. The server may not
// reach them all.
func (c *Client) railDevices(o *Options) (rails []rdma.Device) {
	devices, err := c.Verbs.Devices()
	if err != nil {
		return nil
	}
	for _, d := range devices {
		if d.Usable() && (o.mayUse(d) || isNamed(o.Rail, d.Name, d.Addrs()...)) {
			rails = append(rails, d)
		}
	}
	slices.SortStableFunc(rails, func(a, b rdma.Device) int { return cmp.Compare(b.RateGbps(), a.RateGbps()) })
	// As for the rails that join: a much slower device has another purpose.
	slower := func(d rdma.Device) bool { return d.RateGbps() < rails[0].RateGbps()/2 }
	if i := slices.IndexFunc(rails, slower); i >= 0 {
		rails = rails[:i]
	}
	if o.Rails > 0 {
		rails = rails[:min(o.Rails, len(rails))]
	}
	return rails
}

// sizeFor fills in queue pairs and slots, unless the user has set them, for links of these devices,
// the fastest first. Slow links, and those of which nothing is known, use the defaults. Slots are
// larger if the greatest number of slots would not hold what the links carry.
func (o *Options) sizeFor(rails []rdma.Device) {
	sum := 0.0
	for _, d := range rails {
		sum += d.RateGbps()
	}
	o.follows.gbps = sum
	if o.QPs == 0 && sum > 0 {
		o.QPs = queuePairsFor(rails[0].RateGbps())
	}
	if o.Slots == 0 {
		bytesPerSecond := sum / 8 * 1e9
		if o.chunksFollow() {
			o.ChunkBytes = chunkFor(o.within(bytesPerSecond) * heldSeconds)
		}
		held := int(math.Ceil(bytesPerSecond * heldSeconds / float64(cmp.Or(o.ChunkBytes, DefaultChunkBytes))))
		o.Slots = min(max(DefaultSlots, held), o.mostSlots())
	}
}

// chunksFollow reports whether the size of slots depends on the devices.
func (o *Options) chunksFollow() bool {
	return o.ChunkBytes == 0 && o.Slots == 0 && o.MostSlots == 0 && o.mayWaitForDisks()
}

// chunkFor is the smallest slot size with which the greatest number of slots holds so many bytes.
// Slots that need not be larger are small: a limit leaves few large ones, and so few workers.
func chunkFor(bytes float64) int {
	chunk := DefaultChunkBytes
	for bytes > float64(MaxSlots*chunk) && chunk < mostDefaultChunkBytes {
		chunk *= 2
	}
	return chunk
}

// within is the part of a rate that the user's limits leave.
func (o *Options) within(bytesPerSecond float64) float64 {
	if o.BytesPerSecond > 0 {
		return min(bytesPerSecond, float64(o.BytesPerSecond))
	}
	return bytesPerSecond
}

// sizeFromAfar returns the queue pairs and slots for a server at that distance: as many slots as
// the path carries until their credits have come back, and as many connections as TCP needs for
// that.
func (o *Options) sizeFromAfar(roundTrip time.Duration) (qps, slots int) {
	qps, slots = o.QPs, o.Slots
	if roundTrip <= nearRoundTrip {
		return qps, slots
	}
	bytesPerSecond := o.within(max(o.follows.gbps, farGbps) / 8 * 1e9)
	if o.follows.slots {
		held := bytesPerSecond * (roundTrip.Seconds() + heldSeconds) / float64(o.ChunkBytes)
		slots = max(slots, o.limits().Slots(min(int(math.Ceil(held)), o.mostSlots()), o.ChunkBytes))
	}
	if o.follows.qps {
		windows := math.Ceil(bytesPerSecond * roundTrip.Seconds() / windowBytes)
		qps = max(qps, min(int(min(windows, mostFarQPs)), slots))
	}
	return qps, slots
}

// mayWaitForDisks reports whether more workers than can compute may write at the sink.
func (o *Options) mayWaitForDisks() bool {
	return o.Compress == CompressOff && !o.Encrypt && o.inHost()
}

// inHost reports whether both rings are in host memory.
func (o *Options) inHost() bool {
	isHost := func(gpu string) bool { return gpu == "" || gpu == "off" }
	return isHost(o.GPU) && isHost(o.RemoteGPU)
}

// mostSlots is the most slots that a ring gets unless the user chooses.
func (o *Options) mostSlots() int {
	n := MaxSlots
	if o.ChunkBytes > 0 {
		n = max(min(n, MaxRingBytes/o.ChunkBytes), 1)
	}
	if o.MostSlots > 0 {
		n = min(n, o.MostSlots)
	}
	return n
}

func queuePairsFor(gbps float64) int {
	switch {
	case gbps > veryFastGbps:
		return mostDefaultQPs
	case gbps > fastGbps:
		return 2
	}
	return 1
}
