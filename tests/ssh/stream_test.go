package ssh

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"testing"
)

// TestStreams: standard input and output belong to the copy and not to ssh, even if ssh
// carries the data.
func TestStreams(t *testing.T) {
	for name, install := range map[string]func(*testing.T) func(*testing.T, string){
		"by a port": func(*testing.T) func(*testing.T, string) { return program },
		"by ssh":    cutOff,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			far := newHost(t, "node2", install(t))
			here := newClient(t, far)
			file, there := filepath.Join(here.dir, "f"), t.TempDir()
			makeFile(t, file, 5<<20+77)
			in, err := os.Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			push := here.command(ctx, "-q", "-", "node2:"+there+"/new")
			push.Stdin = in
			if told, err := push.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, told)
			}
			same(t, file, there+"/new")
			r := here.run(t, "node2:"+there+"/new", "-").want(t, 0)
			if want, err := os.ReadFile(file); err != nil || !bytes.Equal([]byte(r.out), want) {
				t.Errorf("%d of %d bytes came: %v", len(r.out), len(want), err)
			}
			makeFile(t, there+"/new2", 1)
			here.run(t, "node2:"+there+"/new*", "-").want(t, 2).says(t, "one file")
			if r := here.run(t, "node2:"+there+"/none", "-").want(t, 1); r.out != "" {
				t.Errorf("of no file there came %q", r.out)
			}
		})
	}
}

// TestFileNamedLikeAStream: a hyphen on another host is a file name.
func TestFileNamedLikeAStream(t *testing.T) {
	t.Parallel()
	a, b := newHost(t, "nodeA", program), newHost(t, "nodeB", program)
	here := newClient(t, a, b)
	from, to := t.TempDir(), t.TempDir()
	makeFile(t, from+"/-", 1000)
	here.run(t, "nodeA:"+from+"/-", "copy").want(t, 0)
	same(t, from+"/-", filepath.Join(here.dir, "copy"))
	here.run(t, "nodeA:"+from+"/-", "nodeB:"+to+"/-").want(t, 0)
	same(t, from+"/-", to+"/-")
	here.run(t, "./-", "nodeB:"+to+"/none").want(t, 1)
}
