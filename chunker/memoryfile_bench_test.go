package chunker

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

const (
	memoryFileBytes = 256 << 20
	slotBytes       = 1 << 20
	windowBytes     = 32 << 20
)

// BenchmarkMemoryFile holds two ways to and from a file in memory (tmpfs) against each
// other: through a slot that is in the processor's cache, and by a mapping of the file
// itself, which an RDMA device could be given. The reader looks at each byte once. What a
// device does in the mapping costs no processor, so "mapped to write" only makes the pages
// and the mapping.
func BenchmarkMemoryFile(b *testing.B) {
	slot := make([]byte, slotBytes)
	for _, way := range []struct {
		name string
		each func(b *testing.B, fd int, off int64)
		step int64
		read bool
	}{
		{"written from a slot", func(b *testing.B, fd int, off int64) {
			if _, err := unix.Pwrite(fd, slot, off); err != nil {
				b.Fatal(err)
			}
		}, slotBytes, false},
		{"mapped to write", func(b *testing.B, fd int, off int64) {
			if err := unix.Fallocate(fd, 0, off, windowBytes); err != nil {
				b.Fatal(err)
			}
			mem := mapWindow(b, fd, off, unix.PROT_READ|unix.PROT_WRITE)
			if err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE); err != nil {
				b.Skipf("the kernel does not make the pages of a mapping (before Linux 5.14): %v", err)
			}
			unmapWindow(b, mem)
		}, windowBytes, false},
		{"read into a slot", func(b *testing.B, fd int, off int64) {
			if _, err := unix.Pread(fd, slot, off); err != nil {
				b.Fatal(err)
			}
			isZero(slot)
		}, slotBytes, true},
		{"mapped to read", func(b *testing.B, fd int, off int64) {
			mem := mapWindow(b, fd, off, unix.PROT_READ)
			isZero(mem)
			unmapWindow(b, mem)
		}, windowBytes, true},
	} {
		b.Run(way.name, func(b *testing.B) {
			path := filepath.Join(fastDir(b), "f")
			b.SetBytes(memoryFileBytes)
			began := cpuNs(b)
			for b.Loop() {
				b.StopTimer()
				before := cpuNs(b)
				fd := memoryFile(b, path, way.read)
				began += cpuNs(b) - before
				b.StartTimer()
				for off := int64(0); off < memoryFileBytes; off += way.step {
					way.each(b, fd, off)
				}
				b.StopTimer()
				before = cpuNs(b)
				closeQuietly(fd)
				os.Remove(path)
				began += cpuNs(b) - before
				b.StartTimer()
			}
			b.ReportMetric(float64(cpuNs(b)-began)/1e6/float64(b.N)/(memoryFileBytes>>20), "CPU-ms/MiB")
		})
	}
}

// memoryFile makes a file in memory, empty or full of zeros.
func memoryFile(b *testing.B, path string, full bool) (fd int) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CREAT|unix.O_TRUNC|unix.O_CLOEXEC, 0o600)
	zeros := make([]byte, slotBytes)
	for off := int64(0); full && err == nil && off < memoryFileBytes; off += slotBytes {
		_, err = unix.Pwrite(fd, zeros, off)
	}
	if err != nil {
		b.Fatal(err)
	}
	return fd
}

func mapWindow(b *testing.B, fd int, off int64, protection int) []byte {
	mem, err := unix.Mmap(fd, off, windowBytes, protection, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	return mem
}

func unmapWindow(b *testing.B, mem []byte) {
	if err := unix.Munmap(mem); err != nil {
		b.Fatal(err)
	}
}
