package xfer_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

func TestPushAndPullTree(t *testing.T) { overAll(t, ways(t), testPushAndPullTree) }

func testPushAndPullTree(t *testing.T, w way) {
	for i, tc := range []struct {
		name string
		set  func(*xfer.Options)
	}{
		{"plain", func(*xfer.Options) {}},
		{"qps", func(o *xfer.Options) { o.QPs = 3 }},
		{"chunk4M", func(o *xfer.Options) { o.ChunkBytes = 4 << 20; o.Slots = 3 }},
		{"oneslot", func(o *xfer.Options) { o.Slots = 1 }},
		{"zstd", func(o *xfer.Options) { o.Compress = xfer.CompressZstd }},
		{"s2", func(o *xfer.Options) { o.Compress = xfer.CompressS2 }},
		{"immsend", func(o *xfer.Options) { o.ForceImmSend = true }},
	} {
		// Each emulated device has some memory of its own, unless all combinations are tested.
		own := 2
		if w.name == "siw0" {
			own = 1
		}
		if w.slow > 1 && i > 0 && i%4 != own && os.Getenv("GDRCP_TEST_FULL") != "1" {
			continue
		}
		t.Run(tc.name, func(t *testing.T) {
			rdmatest.SkipUnlessPicked(t)
			src, s := t.TempDir(), serve(t, w)
			makeTree(t, src)
			o := w.options(t)
			tc.set(&o)
			sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "/copy", o)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, src, filepath.Join(s.root, "copy"))
			end := s.lastEnd(t, 1)
			if end.Err != nil || end.Summary == nil || end.Summary.Content != sum.Content || !sum.Verified || !end.Summary.Verified {
				t.Errorf("ends: %+v and %+v", sum, end)
			}
			back := filepath.Join(t.TempDir(), "back")
			sum2, err := w.client(rdmatest.Faults{}).Pull(t.Context(), s.ep, []string{"copy"}, back, o)
			if err != nil {
				t.Fatal(err)
			}
			sameTree(t, src, back)
			if sum2.Content != sum.Content || sum2.Files != sum.Files || sum.Files != 309 {
				t.Errorf("push %+v\npull %+v", sum, sum2)
			}
		})
	}
}

func TestSingleFile(t *testing.T) { over(t, testSingleFile) }

func testSingleFile(t *testing.T, w way) {
	s := serve(t, w)
	src := filepath.Join(t.TempDir(), "ckpt")
	data := randomBytes(t, 3<<20+7)
	write(t, src, data)
	o := w.options(t)
	o.Recursive = false
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "other", o); err != nil {
		t.Fatal(err)
	}
	if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "/", o); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"other", "ckpt"} {
		if got, err := os.ReadFile(filepath.Join(s.root, name)); err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s: %v, equal: %v", name, err, bytes.Equal(got, data))
		}
	}
}
