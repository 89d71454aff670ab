// Package numatest reports the NUMA node of memory to tests, and fakes machines
// with several nodes.
package numatest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PagesByNode returns how many pages of b are on each node (move_pages(2)).
// Untouched pages are on none.
func PagesByNode(t testing.TB, b []byte) map[int]int {
	t.Helper()
	var pages []unsafe.Pointer
	for at := 0; at < len(b); at += unix.Getpagesize() {
		pages = append(pages, unsafe.Pointer(&b[at]))
	}
	nodes := make([]int32, len(pages))
	if _, _, errno := unix.Syscall6(unix.SYS_MOVE_PAGES, 0, uintptr(len(pages)), uintptr(unsafe.Pointer(&pages[0])), 0, uintptr(unsafe.Pointer(&nodes[0])), 0); errno != 0 {
		t.Fatal(os.NewSyscallError("move_pages", errno))
	}
	byNode := make(map[int]int)
	for _, n := range nodes {
		if n >= 0 { // otherwise an errno
			byNode[int(n)]++
		}
	}
	return byNode
}

// Sysfs creates a directory like /sys of a machine with the given number of
// nodes; this process may run on all of them.
func Sysfs(t testing.TB, nodes int) string {
	t.Helper()
	cpus := AllowedCPUs(t)
	files := map[string]string{"online": "0-" + strconv.Itoa(nodes-1)}
	for i := range nodes {
		files["node"+strconv.Itoa(i)+"/cpulist"] = cpus
	}
	return SysfsOf(t, files)
}

// SysfsOf writes files below a directory like /sys.
func SysfsOf(t testing.TB, files map[string]string) string {
	t.Helper()
	sysfs := t.TempDir()
	for name, text := range files {
		path := filepath.Join(sysfs, "devices/system/node", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs
}

// AllowedCPUs returns the processors that this process may run on, as a list in
// sysfs's format.
func AllowedCPUs(t testing.TB) string {
	t.Helper()
	var allowed unix.CPUSet
	if err := unix.SchedGetaffinity(0, &allowed); err != nil {
		t.Fatal(err)
	}
	var list []string
	for cpu := 0; len(list) < allowed.Count(); cpu++ {
		if allowed.IsSet(cpu) {
			list = append(list, strconv.Itoa(cpu))
		}
	}
	return strings.Join(list, ",")
}
