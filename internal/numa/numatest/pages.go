// Package numatest tells tests on which NUMA node memory is.
package numatest

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// PagesByNode reads how many pages of a mapping lie on which node (proc(5), numa_maps),
// together with those of a neighbouring mapping that the kernel has joined with it.
func PagesByNode(t testing.TB, b []byte) map[int]int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/numa_maps")
	if err != nil {
		t.Fatal(err)
	}
	begins, err := strconv.ParseUint(fmt.Sprintf("%p", &b[0]), 0, 64)
	if err != nil {
		t.Fatal(err)
	}
	its := ""
	for line := range strings.Lines(string(maps)) {
		at, _, _ := strings.Cut(line, " ")
		if address, err := strconv.ParseUint(at, 16, 64); err != nil || address > begins {
			break
		}
		its = line
	}
	pages := make(map[int]int)
	for _, m := range regexp.MustCompile(`N(\d+)=(\d+)`).FindAllStringSubmatch(its, -1) {
		node, _ := strconv.Atoi(m[1])
		pages[node], _ = strconv.Atoi(m[2])
	}
	return pages
}
