package xfer

import (
	"errors"
	"slices"
	"testing"
	"time"

	"gdrcp/rdma"
)

// Queue pairs and slots follow the links' rates, within the user's choices.
func TestSizesFollowTheLink(t *testing.T) {
	for _, c := range []struct {
		name  string
		rates []float64
		given Options
		qps   int
		slots int
	}{
		{"nothing is known", nil, Options{}, 1, 16},
		{"a rate is not known", []float64{0}, Options{}, 1, 16},
		{"10 Gb/s", []float64{10}, Options{}, 1, 16},
		{"50 Gb/s", []float64{50}, Options{}, 1, 30},
		{"100 Gb/s", []float64{100}, Options{}, 2, 60},
		{"200 Gb/s", []float64{200}, Options{}, 4, 120},
		{"400 Gb/s", []float64{400}, Options{}, 4, 239},
		{"two of 400 Gb/s", []float64{400, 400}, Options{}, 4, 239},
		{"four of 400 Gb/s", []float64{400, 400, 400, 400}, Options{}, 4, 239},
		{"eight of 400 Gb/s", []float64{400, 400, 400, 400, 400, 400, 400, 400}, Options{}, 4, MaxSlots},
		{"eight of 400 Gb/s, encrypted", []float64{400, 400, 400, 400, 400, 400, 400, 400}, Options{Encrypt: true}, 4, MaxSlots},
		{"larger chunks", []float64{400}, Options{ChunkBytes: 4 << 20}, 4, 60},
		{"encrypted", []float64{400}, Options{Encrypt: true}, 4, 239},
		{"compressed", []float64{400}, Options{Compress: CompressS2}, 4, 239},
		{"in a GPU", []float64{400}, Options{RemoteGPU: "auto"}, 4, 239},
		{"the largest chunks", []float64{400}, Options{ChunkBytes: MaxChunkBytes}, 4, MaxRingBytes / MaxChunkBytes},
		{"small chunks", []float64{400}, Options{ChunkBytes: MinChunkBytes}, 4, MaxSlots},
		{"--qps", []float64{400}, Options{QPs: 1}, 1, 239},
		{"--slots", []float64{400}, Options{Slots: 4}, 4, 4},
		{"--max-memory", []float64{400}, Options{MostSlots: 30}, 4, 30},
	} {
		o := c.given
		o.sizeFor(devicesAt(c.rates...))
		o.complete()
		if o.QPs != c.qps || o.Slots != c.slots {
			t.Errorf("%s: %d queue pairs, %d slots; want %d, %d", c.name, o.QPs, o.Slots, c.qps, c.slots)
		}
		if o.Slots*o.ChunkBytes > MaxRingBytes {
			t.Errorf("%s: a ring of %d bytes", c.name, o.Slots*o.ChunkBytes)
		}
	}
}

// If the greatest number of slots would not hold what links carry, slots are larger, unless
// something bounds them.
func TestChunksFollowTheRate(t *testing.T) {
	for _, c := range []struct {
		rails int
		given Options
		want  int
	}{
		{1, Options{}, 1 << 20}, {2, Options{}, 2 << 20}, {3, Options{}, 4 << 20}, {4, Options{}, 4 << 20}, {8, Options{}, 4 << 20}, {16, Options{}, 4 << 20},
		{8, Options{ChunkBytes: 64 << 10}, 64 << 10}, {8, Options{Slots: 16}, 1 << 20}, {8, Options{MostSlots: 64}, 1 << 20},
		{8, Options{BytesPerSecond: 10 << 20}, 1 << 20}, {8, Options{BytesPerSecond: 300e9}, 4 << 20},
		{8, Options{Compress: CompressS2}, 1 << 20}, {8, Options{GPU: "0"}, 1 << 20},
	} {
		o := c.given
		o.sizeFor(slices.Repeat(devicesAt(400), c.rails))
		o.complete()
		if o.ChunkBytes != c.want {
			t.Errorf("%d rails, %+v: chunks of %d bytes, want %d", c.rails, c.given, o.ChunkBytes, c.want)
		}
	}
}

// Streams have small chunks, whatever the devices carry.
func TestChunksOfStreamsStaySmall(t *testing.T) {
	c := &Client{Verbs: deviceList{nil, slices.Repeat(devicesAt(400), 8)}}
	o := Options{}
	if c.completeStream(&o); o.ChunkBytes != DefaultChunkBytes || o.Slots != MaxSlots {
		t.Errorf("%d slots of %d bytes", o.Slots, o.ChunkBytes)
	}
	o = Options{ChunkBytes: 2 << 20}
	if c.completeStream(&o); o.ChunkBytes != 2<<20 {
		t.Errorf("chunks of %d bytes, asked for 2 MiB", o.ChunkBytes)
	}
}

// Over a long path there are more slots, and over TCP more connections, within the user's choices.
func TestSizesFollowTheDistance(t *testing.T) {
	for _, c := range []struct {
		name      string
		rates     []float64
		roundTrip time.Duration
		given     Options
		qps       int
		slots     int
	}{
		{"not known", nil, 0, Options{}, 1, 16},
		{"the same room", nil, nearRoundTrip, Options{}, 1, 16},
		{"the same town", nil, time.Millisecond, Options{}, 1, 16},
		{"the next town", nil, 10 * time.Millisecond, Options{}, 4, 18},
		{"another country", nil, 30 * time.Millisecond, Options{}, 8, 42},
		{"another continent", nil, 150 * time.Millisecond, Options{}, 8, 185},
		{"a day", nil, 24 * time.Hour, Options{}, 8, MaxSlots},
		{"large chunks", nil, 150 * time.Millisecond, Options{ChunkBytes: 16 << 20}, 8, 16},
		{"the largest chunks", nil, time.Hour, Options{ChunkBytes: MaxChunkBytes}, 8, MaxRingBytes / MaxChunkBytes},
		{"a limit", nil, 150 * time.Millisecond, Options{BytesPerSecond: 200 << 20}, 8, 31},
		{"--qps", nil, 150 * time.Millisecond, Options{QPs: 2}, 2, 185},
		{"--slots", nil, 150 * time.Millisecond, Options{Slots: 5}, 5, 5},
		{"--max-memory", nil, 150 * time.Millisecond, Options{MostSlots: 30}, 8, 30},
		{"a slow device", []float64{1}, 30 * time.Millisecond, Options{}, 8, 42},
		{"a fast device, and a server in the next town", []float64{400}, 3 * time.Millisecond, Options{}, 8, MaxSlots},
	} {
		o := c.given
		(&Client{Verbs: deviceList{nil, devicesAt(c.rates...)}}).complete(&o)
		if qps, slots := o.sizeFromAfar(c.roundTrip); qps != c.qps || slots != c.slots {
			t.Errorf("%s: %d queue pairs, %d slots; want %d, %d", c.name, qps, slots, c.qps, c.slots)
		}
	}
}

// devicesAt returns devices of these rates, in Gb/s.
func devicesAt(rates ...float64) (devices []rdma.Device) {
	for _, r := range rates {
		devices = append(devices, rdma.Device{Name: "a", Transport: rdma.RoCE, Ports: []rdma.Port{{RateGbps: r}}})
	}
	return devices
}

// deviceList is a provider with devices that nobody can open.
type deviceList struct {
	rdma.Provider
	devices []rdma.Device
}

func (l deviceList) Devices() ([]rdma.Device, error) {
	if l.devices == nil {
		return nil, errors.New("none")
	}
	return l.devices, nil
}

// The devices that count are those over which the copy may go.
func TestRatesOfTheDevicesThatMayCarry(t *testing.T) {
	of := func(name, problem string, gbps float64) rdma.Device {
		return rdma.Device{Name: name, Problem: problem, Transport: rdma.RoCE, Ports: []rdma.Port{{RateGbps: gbps}}}
	}
	all := []rdma.Device{of("slow", "", 25), of("a", "", 200), of("b", "", 400), of("down", "its port is down", 400)}
	for _, c := range []struct {
		name    string
		devices []rdma.Device
		o       Options
		want    []float64
	}{
		{"no device", nil, Options{}, nil},
		{"all that are alike", all, Options{}, []float64{400, 200}},
		{"--rails 1", all, Options{Rails: 1}, []float64{400}},
		{"--rails all", all, Options{Rails: AllRails}, []float64{400, 200}},
		{"--rail slow", all, Options{Rail: "slow"}, []float64{25}},
		{"--rail a --rail b", all, Options{Rail: "a", MoreRails: []string{"b"}}, []float64{400, 200}},
	} {
		client := &Client{Verbs: deviceList{nil, c.devices}}
		var got []float64
		for _, d := range client.railDevices(&c.o) {
			got = append(got, d.RateGbps())
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	o := Options{Transport: "tcp"}
	(&Client{Verbs: deviceList{nil, all}}).complete(&o)
	if o.QPs != 1 || o.Slots != DefaultSlots {
		t.Errorf("over TCP: %d queue pairs, %d slots", o.QPs, o.Slots)
	}
}
