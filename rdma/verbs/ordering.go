//go:build linux && cgo

package verbs

import (
	"fmt"
	"syscall"

	"github.com/klauspost/cpuid/v2"

	"gdrcp/rdma"
)

// relaxes reports whether to register a region, in host memory or in a
// device's, with relaxed ordering.
func relaxes(o rdma.Ordering, ofDevice bool) bool {
	switch o {
	case rdma.OrderingRelaxed:
		return true
	case rdma.OrderingStrict:
		return false
	}
	host, device := fasterRelaxed(cpuid.CPU.VendorID, cpuid.CPU.Family, cpuid.CPU.Model)
	return ofDevice && device || !ofDevice && host
}

// fasterRelaxed reports for which memory a processor is known to be faster with relaxed
// ordering. AMD's are with all memory since Zen (150 against 200 Gb/s, UCX issue 8062).
// Intel's are with a device's memory since Sapphire Rapids (16 against 40 GB/s, UCX issue
// 10955), but not with their own, whose latency gets worse (UCX issue 11532).
func fasterRelaxed(vendor cpuid.Vendor, family, model int) (host, device bool) {
	const (
		zen = 0x17 // family

		sapphireRapids, emeraldRapids  = 0x8f, 0xcf // models of family 6
		graniteRapids, graniteRapidsSP = 0xad, 0xae
	)
	switch vendor {
	case cpuid.AMD:
		return family >= zen, family >= zen
	case cpuid.Intel:
		switch model {
		case sapphireRapids, emeraldRapids, graniteRapids, graniteRapidsSP:
			return false, family == 6
		}
	}
	return false, false
}

// refusesOrdering reports whether a registration may have failed because of the
// ordering flag alone.
func refusesOrdering(number syscall.Errno) bool {
	switch number {
	case syscall.EINVAL, syscall.EOPNOTSUPP, syscall.EPROTONOSUPPORT, syscall.ENOSYS:
		return true
	}
	return false
}

// orderingRefused is the error for a region that cannot have the requested
// relaxed ordering.
func (r *rail) orderingRefused(number syscall.Errno) error {
	return &rdma.OpError{
		Op: "register memory with relaxed ordering", Device: r.dev.Name, Err: fmt.Errorf("%w: %w", rdma.ErrUnsupported, number),
		Hint: "it needs a device, a kernel (Linux 5.6) and rdma-core (28) that take it: leave --relaxed-ordering out",
	}
}
