package xfer_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// A server reports what its sessions need memory for: the slots that they were granted, and the
// chunks of those that compress. In the end that is nothing.
func TestLoad(t *testing.T) {
	w := tcpWay(t)
	var mu sync.Mutex
	var loads []xfer.Load
	s := serve(t, w, func(c *xfer.ServerConfig) {
		c.Load = func(l xfer.Load) {
			mu.Lock()
			defer mu.Unlock()
			loads = append(loads, l)
		}
	})
	dir := t.TempDir()
	write(t, dir+"/a", randomBytes(t, 1000))
	o := w.options(t)
	o.Slots, o.Compress = 3, xfer.CompressS2
	if _, err := (&xfer.Client{TCP: w.provider}).Push(t.Context(), []string{dir + "/a"}, s.ep, "/a", o); err != nil {
		t.Fatal(err)
	}
	told := func() []xfer.Load {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(loads)
	}
	for end := time.Now().Add(rdmatest.Stretch(xfer.AbortWait)); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if l := told(); l[len(l)-1] == (xfer.Load{}) {
			break
		}
	}
	want := []xfer.Load{{Sessions: 1, Slots: 3}, {Sessions: 1, Slots: 3, CodecBytes: 1 << 20}, {Sessions: 1, Slots: 3}, {}}
	if got := told(); !slices.Equal(got, want) {
		t.Errorf("loads %+v, want %+v", got, want)
	}
}
