package cli

import (
	"context"
	"io"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// ^C ends gdrcp even while it waits for names, rules or a manifest that nobody writes.
func TestSignalWhileInputIsAwaited(t *testing.T) {
	t.Parallel() // it waits
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A"})
	fifo := filepath.Join(dir, "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	tree, dst := dir+"/t", dir+"/new"
	for _, args := range [][]string{
		{"-r", "--files-from", "-", tree, dst},
		{"-r", "--files-from", fifo, tree, dst},
		{"-r", "--exclude-from", "-", tree, dst},
		{"-r", "--filter", "merge " + fifo, tree, dst},
		{"manifest", "create", "--files-from", "-", tree},
		{"manifest", "verify", "-", tree},
		{"manifest", "verify", fifo, tree},
		{"manifest", "show", "-"},
		{"manifest", "diff", fifo, fifo},
	} {
		p, _, errs := newProgram()
		in, silent := io.Pipe()
		defer silent.Close()
		p.stdin = in
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(100*time.Millisecond, cancel)
		ended := make(chan int, 1)
		go func() { ended <- p.run(ctx, append([]string{"gdrcp"}, args...)) }()
		select {
		case code := <-ended:
			if code != exitInterrupted || errs.String() != "gdrcp: interrupted\n" {
				t.Errorf("%q: exit code %d: %s", args, code, errs)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%q goes on", args)
		}
	}
}
