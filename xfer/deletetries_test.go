package xfer_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// TestDryDeletionOfSeveralTries: a dry run deletes nothing, so a later attempt finds again what an
// earlier one has reported. It counts and reports each entry once, including what makes room for a
// file that is settled.
func TestDryDeletionOfSeveralTries(t *testing.T) {
	for _, push := range []bool{true, false} {
		t.Run(fmt.Sprintf("push %v", push), func(t *testing.T) {
			var mu sync.Mutex
			var deleted []string
			settled, healed := false, false
			w := tcpWay(t)
			s := serve(t, w)
			src, dst := t.TempDir(), filepath.Join(s.root, "copy")
			if !push {
				src, dst = filepath.Join(s.root, "src"), filepath.Join(t.TempDir(), "copy")
			}
			write(t, filepath.Join(src, "a"), []byte("a file"))
			for _, name := range []string{"a/x", "a/y", "old/x", "z"} {
				write(t, filepath.Join(dst, name), nil)
			}
			o := w.options(t)
			o.Delete, o.DryRun, o.Tries, o.Tally = true, true, xfer.NewTries(), new(xfer.Tally)
			o.Report = func(e xfer.Event) {
				mu.Lock()
				defer mu.Unlock()
				switch {
				case e.Kind == xfer.EventDeleted:
					deleted = append(deleted, e.Path)
				case e.Kind == xfer.EventFile && e.Path == "a":
					settled = true
				}
			}
			client := w.client(rdmatest.Faults{Drop: func(rdmatest.Posted) bool {
				mu.Lock()
				defer mu.Unlock()
				return !healed && settled && len(deleted) > 0
			}})
			copyIt := func() (*xfer.Summary, error) {
				if push {
					return client.Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
				}
				return client.Pull(t.Context(), s.ep, []string{"src/."}, dst, o)
			}
			_, err := copyIt()
			for n := 0; err == nil && n < 100; n++ {
				// The source had sent everything before it received deletions, and nothing was cut.
				o.Tries, o.Tally, deleted, settled = xfer.NewTries(), new(xfer.Tally), nil, false
				_, err = copyIt()
			}
			if err == nil || !o.Tries.MayGoOn(err) {
				t.Fatalf("the first try: %v", err)
			}
			mu.Lock()
			healed = true
			mu.Unlock()
			o.Tries.Again(o.Tally)
			sum, err := copyIt()
			if err != nil {
				t.Fatal(err)
			}
			want := []string{"a", "a/x", "a/y", "old", "old/x", "z"}
			if slices.Sort(deleted); !slices.Equal(deleted, want) || sum.Deleted != int64(len(want)) || sum.Files != 1 {
				t.Errorf("to be deleted are %q, want %q: %+v", deleted, want, sum)
			}
		})
	}
}
