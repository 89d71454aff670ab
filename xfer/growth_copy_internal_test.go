package xfer

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/chunker"
	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer/internal/credit"
	"gdrcp/xfer/internal/credit/credittest"
	"gdrcp/xfer/internal/wire"
)

// always has a ring grow at every look.
func always() heldProbe {
	perSecond := 1.0
	return func() heldLook { perSecond *= 2; return heldLook{busy: 1, perSecond: perSecond} }
}

// Rings of both ends grow in the middle of a copy, over two links of which one may die.
func TestRingsGrowInTheMiddle(t *testing.T) {
	OnHost(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(12)) // 48 workers wait for disks
	for _, c := range []struct {
		name                     string
		push, source, sink, dies bool
	}{
		{"push, both ends", true, true, true, false},
		{"pull, both ends", false, true, true, false},
		{"push, the sink alone", true, false, true, false},
		{"pull, the source alone", false, true, false, false},
		{"push, a link dies", true, true, true, true},
		{"pull, a link dies", false, true, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if testing.Short() && !c.dies {
				t.Skip("it takes seconds: run it without -short")
			}
			var client, server heldProbe
			if c.push && c.source || !c.push && c.sink {
				client = always()
			}
			if c.push && c.sink || !c.push && c.source {
				server = always()
			}
			testGrowth(t, c.push, c.dies, client, server)
		})
	}
}

// awaitWorkers waits until so many workers run at the only source or sink.
func awaitWorkers(t *testing.T, source bool, want int) {
	work := "(*sink).drainSlots("
	if source {
		work = "(*source).fill("
	}
	got, stacks := 0, make([]byte, 1<<20)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		if got = bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(work)); got == want {
			return
		}
	}
	t.Errorf("%d times %s runs, want %d", got, work, want)
}

func testGrowth(t *testing.T, push, dies bool, client, server heldProbe) {
	var r recorder
	began := time.Now()
	var dying atomic.Int64 // the connection that dies
	dying.Store(-1)
	var growing atomic.Int32 // how many rings have not grown for long enough
	for _, probe := range []heldProbe{client, server} {
		if probe != nil {
			growing.Add(1)
		}
	}
	p := rdmatest.Faulty(tcp.New(), rdmatest.Faults{
		// So slow that there is time to grow, on a busy machine too.
		Stall: func(p rdmatest.Posted) bool {
			switch {
			case p.WR.Op != rdma.OpWriteImm || p.WR.Len == 0:
			case growing.Load() > 0:
				time.Sleep(24 * time.Millisecond)
			default:
				time.Sleep(8 * time.Millisecond)
			}
			return false
		},
		Drop: func(p rdmatest.Posted) bool {
			if !dies || p.WR.Op != rdma.OpWriteImm || p.WR.Len == 0 || time.Since(began) < growthLook*3/2 {
				return false
			}
			dying.CompareAndSwap(-1, int64(p.Conn))
			return dying.Load() == int64(p.Conn)
		},
	})
	root := t.TempDir()
	var mu sync.Mutex
	var grown []string
	var v *Server
	booked := map[int]int64{} // at the server, when its ring had so many slots
	hears := func(end string) func(Event) {
		return func(e Event) {
			if e.Kind == EventRing {
				mu.Lock()
				defer mu.Unlock()
				if end == "server" && !e.Remote {
					booked[e.Slots] = v.door.BookedBytes()
				}
				grown = append(grown, fmt.Sprintf("%s hears that remote %t has %d %s", end, e.Remote, e.Slots, e.Text))
				if !e.Remote {
					awaitWorkers(t, (end == "client") == push, min(e.Slots, chunker.DiskWorkers()))
					if e.Slots == 64 {
						growing.Add(-1)
					}
				}
			}
		}
	}
	var loads []Load
	v = NewServer(ServerConfig{
		Keys: OneKey(testKey, Admission{Root: DirRoot(root)}), Timeouts: shortTimeouts(), trace: r.of(push), probe: server, Report: hears("server"),
		Load: func(l Load) { loads = append(loads, l) },
	})
	ep := listenTwice(t, v, p)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- v.Serve(ctx) }()
	data := make([]byte, 160<<20)
	for i := range data {
		data[i] = byte(i >> 12 * 7)
	}
	o := Options{Transport: "tcp", Timeouts: shortTimeouts(), Rails: AllRails, trace: r.of(!push), probe: client, Report: hears("client")}
	c := &Client{TCP: p}
	sum, err := copyFile(t, c, ep, root, push, data, o)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := credittest.CheckEnded(r.steps); err != nil {
		t.Error(err)
	}
	for _, end := range []struct {
		name  string
		probe heldProbe
	}{{"client", client}, {"server", server}} {
		for _, slots := range []int{32, 64} {
			want := fmt.Sprintf("%s hears that remote false has %d ", end.name, slots)
			if slices.Contains(grown, want) != (end.probe != nil) {
				t.Errorf("%q is not so in %q", want, grown)
			}
		}
	}
	source := "client"
	sink := server
	if !push {
		source, sink = "server", client
	}
	if want := source + " hears that remote true has 64 "; slices.Contains(grown, want) != (sink != nil) {
		t.Errorf("%q is not so in %q", want, grown)
	}
	// Memory is taken for what has grown at the server, and given back.
	if server != nil && !slices.Contains(loads, Load{Sessions: 1, Slots: 64}) || loads[len(loads)-1] != (Load{}) || v.door.BookedBytes() != 0 {
		t.Errorf("loads %v, %d bytes booked at the end", loads, v.door.BookedBytes())
	}
	const perSlot = int64(DefaultChunkBytes + wire.HeaderStride)
	if more := booked[64] - booked[32]; server != nil && !dies && more != 32*perSlot {
		t.Errorf("%d bytes were booked for 32 slots more, want %d", more, 32*perSlot)
	}
	used := slices.ContainsFunc(sum.Rails, func(u RailUse) bool { return u.Faults > 0 })
	if used != dies || len(sum.Rails) != 2 {
		t.Errorf("a link died: %t, of %d", used, len(sum.Rails))
	}
	most := uint32(0)
	var links []credit.Link // of each chunk
	for _, s := range r.steps {
		most = max(most, s.Place.Slot+1)
		if s.Kind == credit.StepAddressed {
			links = append(links, s.Link)
		}
	}
	if sink != nil && client != nil && server != nil && most <= 16 || sink == nil && most > 16 {
		t.Errorf("slots up to %d were used", most)
	}
	// The last 50 chunks go when the rings have grown.
	if last := links[max(0, len(links)-50):]; !dies && !(slices.Contains(last, 1) && slices.Contains(last, 2)) {
		t.Errorf("the last chunks went over the links %v only", last)
	}
}
