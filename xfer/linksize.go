package xfer

import (
	"math"
	"slices"

	"gdrcp/chunker"
)

const (
	// fastGbps and veryFastGbps are the rates above which one queue pair, and above which
	// two, may not fill a link: a device works off each by one of its engines.
	fastGbps, veryFastGbps = 50, 150
	// mostDefaultQPs is how many queue pairs a link gets unless the user says otherwise.
	mostDefaultQPs = 4
	// heldSeconds is for how long a slot is taken: its way there, the check, the write, and
	// its way back. So much of what the links carry has to fit the ring. Where workers may wait
	// for a disk that takes longer, the ring is up to twice as large.
	heldSeconds = 2e-3
)

// complete fills in defaults, those of the ring by the devices here that may carry the
// copy.
func (c *Client) complete(o *Options) {
	if (o.QPs == 0 || o.Slots == 0) && o.Transport != "tcp" && c.Verbs != nil {
		o.sizeFor(c.ratesGbps(o))
	}
	o.complete()
}

// ratesGbps are the rates of the RDMA devices that may carry the copy, the highest first.
// The server may not reach them all.
func (c *Client) ratesGbps(o *Options) (rates []float64) {
	devices, err := c.Verbs.Devices()
	if err != nil {
		return nil
	}
	for _, d := range devices {
		if d.Usable() && (o.mayUse(d) || isNamed(o.Rail, d.Name, d.Addrs()...)) {
			rates = append(rates, d.RateGbps())
		}
	}
	slices.SortFunc(rates, func(a, b float64) int { return int(math.Copysign(1, b-a)) })
	// As of the rails that join: a much slower device has another purpose.
	slower := func(r float64) bool { return r < rates[0]/2 }
	if i := slices.IndexFunc(rates, slower); i >= 0 {
		rates = rates[:i]
	}
	if o.Rails > 0 {
		rates = rates[:min(o.Rails, len(rates))]
	}
	return rates
}

// sizeFor fills in queue pairs and slots, where the user has not, for links of these
// rates in Gb/s, the highest first. Slow links, and those of which nothing is known, leave
// the defaults.
func (o *Options) sizeFor(ratesGbps []float64) {
	sum := 0.0
	for _, r := range ratesGbps {
		sum += r
	}
	if o.QPs == 0 && sum > 0 {
		o.QPs = queuePairsFor(ratesGbps[0])
	}
	if o.Slots == 0 {
		chunkBytes := o.ChunkBytes
		if chunkBytes == 0 {
			chunkBytes = DefaultChunkBytes
		}
		held := int(math.Ceil(sum / 8 * 1e9 * heldSeconds / float64(chunkBytes)))
		if o.mayWaitForDisks() {
			held += min(held, chunker.DiskWorkers())
		}
		o.Slots = min(max(DefaultSlots, held), o.mostSlots())
	}
}

// mayWaitForDisks reports whether more workers than compute may write at the sink.
func (o *Options) mayWaitForDisks() bool {
	inHost := func(gpu string) bool { return gpu == "" || gpu == "off" }
	return o.Compress == CompressOff && !o.Encrypt && inHost(o.GPU) && inHost(o.RemoteGPU)
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
