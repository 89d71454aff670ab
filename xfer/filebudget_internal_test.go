package xfer

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/rdma/tcp"
)

// TestCopiesWithoutDescriptors: a copy works if the server has no descriptors for its session beyond
// the least, however many large files are in progress, and whatever small files are next to them.
func TestCopiesWithoutDescriptors(t *testing.T) {
	OnHost(t)
	for _, c := range []struct{ transfers, large, middling, small int }{{4, 4, 20, 300}, {12, 12, 0, 0}, {MaxTransfers, MaxTransfers, 20, 50}} {
		w := byTCP()
		root, addr, _ := w.serve(t, func(cfg *ServerConfig) { cfg.files = 1 })
		o, src := w.options(), t.TempDir()
		o.Slots, o.QPs, o.ChunkBytes, o.Transfers = 32, 16, 1<<20, c.transfers
		for i := range c.large + c.middling + c.small {
			size := 1000
			if i < c.large {
				size = largeBytes + 1<<20
			} else if i < c.large+c.middling {
				size = 3 << 19 // it shares a chunk with the next one
			}
			if err := os.WriteFile(fmt.Sprintf("%s/%03d", src, i), bytes.Repeat([]byte{1}, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		client, ep := &Client{TCP: tcp.New()}, Endpoint{Host: addr.Addr().String(), Port: addr.Port(), Key: testKey}
		if sum, err := client.Push(ctx, []string{src + "/"}, ep, "dst", *o); err != nil || sum.Failed != 0 {
			t.Errorf("push, %+v: %v, %+v", c, err, sum)
		}
		o.Tally = nil
		if err := os.CopyFS(filepath.Join(root, "src"), os.DirFS(src)); err != nil {
			t.Fatal(err)
		}
		if sum, err := client.Pull(ctx, ep, []string{"src/"}, t.TempDir(), *o); err != nil || sum.Failed != 0 || sum.Files != int64(c.large+c.middling+c.small) {
			t.Errorf("pull, %+v: %v, %+v", c, err, sum)
		}
	}
}
