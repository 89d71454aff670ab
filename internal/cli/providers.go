package cli

import (
	"os"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/rdma/verbs"
)

func newVerbs() rdma.Provider { return verbs.New() }
func newTCP() rdma.Provider   { return tcp.New() }

// kernelDevices is the directory with an entry for each RDMA device that the kernel knows.
const kernelDevices = "/sys/class/infiniband"

// hasDevice reports whether this machine has an RDMA device, even an unusable one, such
// as one whose port is down or whose library is missing.
func (p *program) hasDevice() bool {
	if p.verbs != nil {
		if list, err := p.verbs.Devices(); err == nil {
			return len(list) > 0
		}
	}
	list, err := os.ReadDir(p.kernelDevices)
	return err == nil && len(list) > 0
}
