package chunker

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// fastDir is a directory in memory where there is one: what is measured is this
// package, not a disk.
func fastDir(tb testing.TB) string {
	tb.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "gdrcp-test-")
	if err != nil {
		return tb.TempDir()
	}
	tb.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// cpuNs is the processor time this process has used.
func cpuNs(tb testing.TB) int64 {
	tb.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

func BenchmarkSinkSmallFiles(b *testing.B) {
	const files, batch = 10_000, 256
	for _, preserve := range []bool{false, true} {
		b.Run(fmt.Sprintf("preserve=%v", preserve), func(b *testing.B) {
			data := make([]byte, 4096)
			for i := range data {
				data[i] = byte(i)
			}
			var cpu int64
			for b.Loop() {
				b.StopTimer()
				dir := fastDir(b)
				b.StartTimer()
				before := cpuNs(b)
				writeMany(b, dir, files, batch, data, preserve)
				cpu += cpuNs(b) - before
				b.StopTimer()
				os.RemoveAll(dir)
				b.StartTimer()
			}
			n := float64(b.N * files)
			b.ReportMetric(float64(b.Elapsed().Microseconds())/n, "us/file")
			b.ReportMetric(float64(cpu)/1000/n, "cpu-us/file")
		})
	}
}

func writeMany(b *testing.B, dir string, files, batch int, data []byte, preserve bool) {
	b.Helper()
	sink, err := OpenSink(SinkOptions{Dest: dir, Keep: Keep{Modes: preserve, Times: preserve}})
	if err != nil {
		b.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Place(&manifest.Entry{Type: manifest.Dir, Path: "."}, "tree"); err != nil {
		b.Fatal(err)
	}
	if err := sink.Mkdir(&manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755}, nil); err != nil {
		b.Fatal(err)
	}
	temps := make([]*Temp, 0, batch)
	for i := range files {
		e := manifest.Entry{Type: manifest.File, Path: fmt.Sprintf("file-%06d", i), Size: int64(len(data)), Mode: 0o644, MtimeNs: 1e18}
		t, err := sink.Create(&e, nil)
		if err == nil {
			_, err = t.WriteAt(data, 0)
		}
		if err == nil {
			err = t.Finish()
		}
		if err != nil {
			b.Fatal(err)
		}
		if temps = append(temps, t); len(temps) == batch || i == files-1 {
			for _, err := range sink.Publish(temps) {
				if err != nil {
					b.Fatal(err)
				}
			}
			temps = temps[:0]
		}
	}
	if err := sink.FinishDirs(); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkWalk walks a tree of the Linux source's proportions: 86,400 files in
// 5,760 directories, three deep.
func BenchmarkWalk(b *testing.B) {
	dir := fastDir(b)
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
