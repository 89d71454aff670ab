package xfer_test

import (
	"bytes"
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
	"gdrcp/xfer/internal/door"
)

// farAway is a provider that reports that a door is far away.
type farAway struct {
	rdma.Provider
	roundTrip time.Duration
}

func (f farAway) Open(device string, cfg rdma.RailConfig) (rdma.Rail, error) {
	r, err := f.Provider.Open(device, cfg)
	if err != nil || cfg.MsgBytes != door.MsgBytes {
		return r, err
	}
	return farRail{r, f.roundTrip}, nil
}

type farRail struct {
	rdma.Rail
	roundTrip time.Duration
}

func (f farRail) Dial(ctx context.Context, addr netip.AddrPort, data []byte) (rdma.Conn, error) {
	c, err := f.Rail.Dial(ctx, addr, data)
	if err != nil {
		return nil, err
	}
	return farConn{c, f.roundTrip}, nil
}

type farConn struct {
	rdma.Conn
	roundTrip time.Duration
}

func (f farConn) RoundTrip() time.Duration { return f.roundTrip }

// A copy to a distant server has more data in flight: more slots, and over TCP more connections, as
// far as the user, the server's memory and rate limits allow.
func TestServerFarAway(t *testing.T) {
	w := tcpWay(t)
	for _, c := range []struct {
		name      string
		roundTrip time.Duration
		serve     func(*xfer.ServerConfig)
		options   func(*xfer.Options)
		qps       int
		slots     int
	}{
		{"near", 200 * time.Microsecond, nil, nil, 1, 16},
		{"20 ms", 20 * time.Millisecond, nil, nil, 8, 30},
		{"5 ms", 5 * time.Millisecond, nil, nil, 2, 16},
		{"--qps and --slots", 20 * time.Millisecond, nil, func(o *xfer.Options) { o.QPs, o.Slots = 3, 4 }, 3, 4},
		{"--max-memory", 20 * time.Millisecond, nil, func(o *xfer.Options) { o.MostSlots = 20 }, 8, 20},
		{"--bwlimit", 20 * time.Millisecond, nil, func(o *xfer.Options) { o.BytesPerSecond = 256 << 20 }, 2, 16},
		{"the server's memory", 20 * time.Millisecond, func(c *xfer.ServerConfig) { c.MaxMemory = 24 << 20 }, nil, 1, 20},
		{"a server with little memory", 20 * time.Millisecond, func(c *xfer.ServerConfig) { c.MaxMemory = 8 << 20 }, nil, 1, 5},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := serve(t, w, func(cfg *xfer.ServerConfig) {
				if c.serve != nil {
					c.serve(cfg)
				}
			})
			src, data := filepath.Join(t.TempDir(), "f"), randomBytes(t, 40<<20)
			write(t, src, data)
			o := w.options(t)
			if c.options != nil {
				c.options(&o)
			}
			client := &xfer.Client{TCP: farAway{w.provider, c.roundTrip}}
			sum, err := client.Push(t.Context(), []string{src}, s.ep, "there", o)
			if err != nil {
				t.Fatal(err)
			}
			if got, err := os.ReadFile(filepath.Join(s.root, "there")); err != nil || !bytes.Equal(got, data) {
				t.Errorf("other bytes arrived, %v", err)
			}
			if sum.Link.QPs != c.qps || sum.Link.Slots != c.slots {
				t.Errorf("%d queue pairs and %d slots, want %d and %d", sum.Link.QPs, sum.Link.Slots, c.qps, c.slots)
			}
		})
	}
}

// The connections are for TCP. A session over RDMA devices that was set up over TCP has as many
// queue pairs as their rate needs.
func TestServerFarAwayByRDMA(t *testing.T) {
	s, o := serveNICs(t, rdmatest.Faults{})
	o.Rails = 1
	c := &xfer.Client{TCP: farAway{tcp.New(), 20 * time.Millisecond}, Verbs: twoNICs{tcp.New()}}
	sum := copyOneWay(t, c, s, o, true, 8<<20)
	if sum.Link.Transport != "verbs" || sum.Link.QPs != 4 || sum.Link.Slots != xfer.DefaultSlots {
		t.Errorf("over %s with %d queue pairs and %d slots", sum.Link.Transport, sum.Link.QPs, sum.Link.Slots)
	}
}
