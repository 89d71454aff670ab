package xfer

import (
	"cmp"
	"math"
	"slices"
	"time"

	"gdrcp/rdma"
)

const (
	// fastGbps and veryFastGbps are the rates above which one queue pair, and above which
	// two, may not fill a link: a device works off each by one of its engines.
	fastGbps, veryFastGbps = 50, 150
	// mostDefaultQPs is how many queue pairs a link gets unless the user says otherwise.
	mostDefaultQPs = 4
	// mostDefaultChunkBytes is the largest slot, of which the largest ring holds the most.
	mostDefaultChunkBytes = MaxRingBytes / MaxSlots
	// heldSeconds is for how long a slot is taken to be in use: its way there, the check, the
	// write, and its way back. So much of what the links carry has to fit the ring. A device
	// and a page cache need 2 ms; the rest is for disks and spells.
	heldSeconds = 5e-3
	// nearRoundTrip is the longest way to the server and back that heldSeconds have room for.
	nearRoundTrip = 500 * time.Microsecond
	// farGbps is the rate that a path is taken to have of which nothing is known.
	farGbps = 10
	// windowBytes is what one TCP connection has under way at most: Linux gives half of a
	// receive buffer of 6 MiB to the window (tcp(7), tcp_rmem and tcp_adv_win_scale).
	windowBytes = 3 << 20
	// mostFarQPs is how many TCP connections a link to a server far away gets.
	mostFarQPs = 8
)

// linkSizes is which sizes of a link follow the path, and by what rate.
type linkSizes struct {
	qps, slots bool
	gbps       float64
}

// complete fills in defaults, those of the ring by the devices here that may carry the
// copy.
func (c *Client) complete(o *Options) {
	o.follows = linkSizes{o.QPs == 0, o.Slots == 0, 0}
	if (o.QPs == 0 || o.Slots == 0) && o.Transport != "tcp" && c.Verbs != nil {
		o.sizeFor(c.railDevices(o))
	}
	o.complete()
}

// railDevices are the RDMA devices that may carry the copy, the fastest first. The server may
// not reach them all.
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
	// As of the rails that join: a much slower device has another purpose.
	slower := func(d rdma.Device) bool { return d.RateGbps() < rails[0].RateGbps()/2 }
	if i := slices.IndexFunc(rails, slower); i >= 0 {
		rails = rails[:i]
	}
	if o.Rails > 0 {
		rails = rails[:min(o.Rails, len(rails))]
	}
	return rails
}

// sizeFor fills in queue pairs and slots, where the user has not, for links of these devices,
// the fastest first. Slow links, and those of which nothing is known, leave the defaults. Slots
// are larger where the most slots would not hold what the links carry.
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

// chunksFollow reports whether the size of slots follows the devices.
func (o *Options) chunksFollow() bool {
	return o.ChunkBytes == 0 && o.Slots == 0 && o.MostSlots == 0 && o.mayWaitForDisks()
}

// chunkFor is the smallest slot of which the most hold so many bytes. Slots that need not be
// larger stay small: of large ones a limit leaves few, and so few workers.
func chunkFor(bytes float64) int {
	chunk := DefaultChunkBytes
	for bytes > float64(MaxSlots*chunk) && chunk < mostDefaultChunkBytes {
		chunk *= 2
	}
	return chunk
}

// within is what a limit of the user's leaves of a rate.
func (o *Options) within(bytesPerSecond float64) float64 {
	if o.BytesPerSecond > 0 {
		return min(bytesPerSecond, float64(o.BytesPerSecond))
	}
	return bytesPerSecond
}

// sizeFromAfar returns the queue pairs and slots for a server that is so far away: as
// many slots as the path carries until their credits have come back, and as many
// connections as TCP needs for that.
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

// mayWaitForDisks reports whether more workers than compute may write at the sink.
func (o *Options) mayWaitForDisks() bool {
	return o.Compress == CompressOff && !o.Encrypt && o.inHost()
}

// inHost reports whether both rings are in host memory.
func (o *Options) inHost() bool {
	isHost := func(gpu string) bool { return gpu == "" || gpu == "off" }
	return isHost(o.GPU) && isHost(o.RemoteGPU)
}

// mostSlots is the most slots that a ring gets unless the user says otherwise.
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
