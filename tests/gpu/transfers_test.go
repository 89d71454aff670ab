package gpu

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

const mib = 1 << 20

// ends are the ends that have their slots in the GPU.
type ends struct{ client, server bool }

func (e ends) args() (args []string) {
	if e.client {
		args = append(args, "--gpu", "0")
	}
	if e.server {
		args = append(args, "--remote-gpu", "0")
	}
	return args
}

// check holds what a summary says of the slots against what was asked for.
func (e ends) check(t testing.TB, summary map[string]any) {
	t.Helper()
	for field, inGPU := range map[string]bool{"local_slots": e.client, "remote_slots": e.server} {
		index, rung := -1.0, "host"
		if inGPU {
			index, rung = 0, "staged"
		}
		if slots, _ := summary[field].(map[string]any); slots["gpu"] != index || slots["rung"] != rung {
			t.Errorf("%s are %v, want GPU %v and %s", field, slots, index, rung)
		}
	}
}

// TestRealTransfers copies trees to and from a server with slots in a GPU at
// the source, at the sink and at both.
func TestRealTransfers(t *testing.T) { transfers(t, realMachine(t), 100*mib, 3000, "64") }

// TestTransfers is the same over the fake.
func TestTransfers(t *testing.T) { transfers(t, fakeMachine(t), 6*mib, 100, "8") }

func transfers(t *testing.T, m *machine, largeBytes int64, files int, slots string) {
	t.Helper()
	t.Logf("GPU 0 is %s", m.name)
	src, root := t.TempDir()+"/tree", t.TempDir()
	makeTree(t, src, largeBytes, files)
	created := events(t, m.run(t, "manifest", "create", "--hash", "blake3", "--json", "-o", os.DevNull, src))[0]
	url := m.serve(t, root)
	for _, e := range []ends{{true, false}, {false, true}, {true, true}} {
		for _, chunk := range []string{"1MiB", "4MiB"} {
			t.Run(fmt.Sprintf("client=%v,server=%v,chunk=%s", e.client, e.server, chunk), func(t *testing.T) {
				options := append([]string{"-rl", "--chunk-size", chunk, "--slots", slots}, e.args()...)
				back := t.TempDir() + "/back"
				name := fmt.Sprintf("%v-%v-%s", e.client, e.server, chunk)
				for _, operands := range [][]string{{src, url + name}, {url + name, back}} {
					summary := m.copy(t, append(operands, options...)...)
					e.check(t, summary)
					if summary["hash"] != "blake3" || summary["root"] != created["root"] {
						t.Errorf("the root is %v %v, the processor's of the tree %v", summary["hash"], summary["root"], created["root"])
					}
				}
				for _, copied := range []string{filepath.Join(root, name), back} {
					sameTree(t, src, copied)
					if err := os.RemoveAll(copied); err != nil { // for there may be little room
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// noise is the same for the same seed, and does not compress.
func noise(seed uint64) io.Reader {
	var key [32]byte
	copy(key[:], fmt.Sprintf("noise %d", seed))
	return rand.NewChaCha8(key)
}

func makeFile(t testing.TB, path string, size int64, seed uint64) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := io.CopyBuffer(struct{ io.Writer }{f}, io.LimitReader(noise(seed), size), make([]byte, mib)); err != nil {
		t.Fatal(err)
	}
}

// makeTree makes a tree of a large file, one with a hole, an empty one and many
// small ones.
func makeTree(t testing.TB, dir string, largeBytes int64, files int) {
	t.Helper()
	if err := os.MkdirAll(dir+"/small", 0o755); err != nil {
		t.Fatal(err)
	}
	makeFile(t, dir+"/large", largeBytes+12345, 1)
	makeFile(t, dir+"/sparse", 3*mib/2, 2)
	if err := os.Truncate(dir+"/sparse", 20*mib); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	for i := range files {
		size := int64(0)
		if i > 0 {
			size = int64(r.ExpFloat64() * 20000)
		}
		makeFile(t, fmt.Sprintf("%s/small/%d", dir, i), size, uint64(i)+3)
	}
}

// sameTree fails the test where copied has not the files of original, or other
// content.
func sameTree(t testing.TB, original, copied string) {
	t.Helper()
	count := func(dir string) (n int) {
		_ = filepath.WalkDir(dir, func(string, fs.DirEntry, error) error { n++; return nil }) // what is missing is found below
		return n
	}
	if a, b := count(original), count(copied); a != b {
		t.Errorf("%d names arrived, not %d", b, a)
	}
	err := filepath.WalkDir(original, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if got, err := os.ReadFile(filepath.Join(copied, path[len(original):])); err != nil || !bytes.Equal(got, want) {
			return fmt.Errorf("%q is not what was copied: %d bytes for %d, %v", path, len(got), len(want), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
