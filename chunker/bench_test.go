package chunker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

// BenchmarkWalk walks a tree of the Linux source's proportions: 86,400 files in
// 5,760 directories, three deep.
func BenchmarkWalk(b *testing.B) {
	dir := treetest.FastDir(b)
	const top, sub, files = 24, 240, 15
	for i := range top {
		for j := range sub {
			d := filepath.Join(dir, fmt.Sprintf("dir-%d", i), fmt.Sprintf("sub-%d", j))
			if err := os.MkdirAll(d, 0o755); err != nil {
				b.Fatal(err)
			}
			for k := range files {
				if err := os.WriteFile(filepath.Join(d, fmt.Sprintf("source-file-%d.c", k)), nil, 0o644); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		b.Fatal(err)
	}
	defer root.Close()
	local, err := OpenLocal([]Source{{Path: dir, Name: "."}}, false)
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close()
	rooted, err := OpenRooted(root, []Source{{Path: "/", Name: "."}}, false)
	if err != nil {
		b.Fatal(err)
	}
	defer rooted.Close()
	for name, tree := range map[string]*Tree{"local": local, "rooted": rooted} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				w := tree.Walk(true)
				n := 0
				for {
					f, err := w.Next()
					if err != nil {
						break
					}
					if f.Entry.Type == manifest.File {
						n++
					}
				}
				w.Close()
				if n != top*sub*files {
					b.Fatalf("%d files", n)
				}
			}
		})
	}
}
