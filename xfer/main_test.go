//go:build linux && cgo

package xfer_test

import (
	"fmt"
	"os"
	"testing"

	"gdrcp/gpu/gputest"
	"gdrcp/rdma/rdmatest"

	"golang.org/x/sys/unix"
)

// freeBytes is the free space in the file system of dir, 0 if there is none.
func freeBytes(dir string) int64 {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0
	}
	return int64(st.Bavail) * st.Bsize
}

// TestMain builds the fake libcuda once for all tests.
func TestMain(m *testing.M) { os.Exit(withFakeCUDA(m)) }

func withFakeCUDA(m *testing.M) int {
	// The copies are to test the engine, not a disk.
	if os.Getenv("TMPDIR") == "" && freeBytes("/dev/shm") >= 2<<30 {
		os.Setenv("TMPDIR", "/dev/shm")
	}
	dir, err := os.MkdirTemp("", "gdrcp-fake-")
	if err == nil {
		defer os.RemoveAll(dir)
		var library string
		if library, err = gputest.Build(dir); err == nil {
			err = os.Setenv(gputest.Library, library)
		}
	}
	if err == nil && os.Getenv("GDRCP_TEST_RDMA") == "" {
		err = rdmatest.AtOnce(8)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}
