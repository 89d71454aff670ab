package dest

import (
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

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
				dir := treetest.FastDir(b)
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
	sink, err := Open(Options{Dest: dir, Keep: Keep{Modes: preserve, Times: preserve}})
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
