package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gdrcp/chunker/dest"

	"golang.org/x/sys/unix"
)

func TestBenchDisk(t *testing.T) {
	dir := t.TempDir()
	const bytes = 3<<20 + 5000
	d, err := BenchDisk(t.Context(), dir, bytes)
	if err != nil {
		t.Fatal(err)
	}
	if d.Bytes != bytes || d.WriteSeconds <= 0 || d.ReadSeconds <= 0 || d.SyncSeconds <= 0 || d.SyncSeconds > d.WriteSeconds || d.WriteMiBPerSecond() <= 0 || d.ReadMiBPerSecond() <= 0 {
		t.Errorf("%+v", d)
	}
	wantEmpty(t, dir)
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v is left in %s, %v", left, dir, err)
	}
}

// A measurement that is interrupted, or that has no room, leaves no file.
func TestBenchDiskCleansUp(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := BenchDisk(ctx, dir, 1<<40) // more than anybody waits for
		done <- err
	}()
	for begun := time.Now(); ; time.Sleep(time.Millisecond) {
		if some, _ := filepath.Glob(filepath.Join(dir, ".*")); len(some) > 0 {
			break
		}
		if time.Since(begun) > time.Minute {
			t.Fatal("nothing was written")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	wantEmpty(t, dir)
	if _, err := BenchDisk(t.Context(), filepath.Join(dir, "none"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("in a directory that is not there: %v", err)
	}
}

// A fifo is no directory, and must not block the measurement.
func TestBenchDiskOfFIFO(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := BenchDisk(t.Context(), fifo, 1)
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, unix.ENOTDIR) {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("it still waits")
	}
}

// The data that is read back must be what was written.
func TestBenchDiskComparesBytes(t *testing.T) {
	dir := t.TempDir()
	b := diskBench{path: filepath.Join(dir, dest.ScratchName()), bytes: 2 << 20, pattern: make([]byte, 1<<20)}
	if err := b.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.read(t.Context()); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(b.path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, 7), 1<<20+diskBlock); err != nil {
		t.Fatal(err)
	}
	if err := b.read(t.Context()); !errors.Is(err, ErrIntegrity) || !strings.Contains(err.Error(), "1052672") {
		t.Errorf("with a wrong block %v", err)
	}
}

// The file of a measurement is removed after a kill, by a copy too, but not while the measurement
// runs.
func TestBenchDiskIsCleanedUp(t *testing.T) {
	dir := t.TempDir()
	b := diskBench{path: filepath.Join(dir, dest.ScratchName()), bytes: 1 << 20, pattern: make([]byte, 1<<20)}
	if err := b.write(t.Context()); err != nil {
		t.Fatal(err)
	}
	clean := func() {
		t.Helper()
		if err := dest.Clean(t.Context(), dir, func(string, int64, int64) {}); err != nil {
			t.Fatal(err)
		}
	}
	clean()
	if err := b.read(t.Context()); err != nil {
		t.Errorf("somebody cleaned up meanwhile: %v", err)
	}
	if err := b.lock.Close(); err != nil { // as a kill does
		t.Fatal(err)
	}
	clean()
	wantEmpty(t, dir)
}

// A file on a disk is read from there, and one in memory is reported as such.
func TestDropFromMemory(t *testing.T) {
	for _, dir := range []string{t.TempDir(), "/var/tmp", "/dev/shm"} {
		var fs unix.Statfs_t
		if err := unix.Statfs(dir, &fs); err != nil {
			t.Skip(err)
		}
		switch fs.Type {
		case unix.TMPFS_MAGIC:
			if !staysInMemory(t, dir) {
				t.Errorf("%s is in memory, and the file is not", dir)
			}
		case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC:
			// On a busy machine another processor may be using a page of the file.
			tries := 10
			for tries > 0 && staysInMemory(t, dir) {
				tries--
			}
			if tries == 0 {
				t.Errorf("all files in %s are still in memory", dir)
			}
		}
	}
}

// staysInMemory writes a file, and reports whether it is in memory after it was dropped.
func staysInMemory(t *testing.T, dir string) bool {
	t.Helper()
	f, err := os.CreateTemp(dir, "gdrcp-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.Remove(f.Name())
	defer f.Close()
	const bytes = 1 << 20
	if _, err := f.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	left, err := dropFromMemory(f.Name(), bytes)
	if err != nil {
		t.Fatal(err)
	}
	return left
}
