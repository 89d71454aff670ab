package cli

import (
	"os"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
)

func newVerbs() rdma.Provider { return verbs.New() }
func newTCP() rdma.Provider   { return tcp.New() }

// kernelDevices has an entry for each RDMA device that the kernel knows.
const kernelDevices = "/sys/class/infiniband"

// hasDevice reports whether this machine has an RDMA device, be it one that
// cannot be used: one whose port is down, or that no library was found for.
func (p *program) hasDevice() bool {
	if p.verbs != nil {
		if list, err := p.verbs.Devices(); err == nil {
			return len(list) > 0
		}
	}
	list, err := os.ReadDir(p.kernelDevices)
	return err == nil && len(list) > 0
}
