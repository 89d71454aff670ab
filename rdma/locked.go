package rdma

import (
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// MayLockAll reports whether the kernel exempts this process from the limit on locked
// memory (RLIMIT_MEMLOCK) when it registers memory. CAP_IPC_LOCK exempts it, but only in
// the initial user namespace (capable in ib_umem_get). Soft-iWARP grants no exemption.
func MayLockAll() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if unix.Capget(&header, &data[0]) != nil || data[0].Effective&(1<<unix.CAP_IPC_LOCK) == 0 {
		return false
	}
	users, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && slices.Equal(strings.Fields(string(users)), []string{"0", "0", "4294967295"})
}
