package rdma

import "fmt"

// Ordering controls whether a device's accesses to Unordered regions may overtake its
// earlier accesses on the way between device and memory (PCI Express Base Specification,
// 2.4.1, relaxed ordering; ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING). A completion still
// means that all of its data has arrived, and so does a Read that flushes: read requests
// never pass write requests, whatever their ordering attributes.
type Ordering uint8

// The orderings.
const (
	// OrderingAuto is relaxed on processors that are known to be faster with it.
	OrderingAuto Ordering = iota
	// OrderingRelaxed is always relaxed. Register fails with ErrUnsupported if
	// it cannot request that.
	OrderingRelaxed
	// OrderingStrict is never relaxed.
	OrderingStrict
)

// orderingNames are the option's values on the command line.
var orderingNames = [...]string{"auto", "on", "off"}

// String returns the name that ParseOrdering accepts.
func (o Ordering) String() string {
	if int(o) < len(orderingNames) {
		return orderingNames[o]
	}
	return fmt.Sprintf("ordering %d", uint8(o))
}

// ParseOrdering is String's inverse. ok is false for an unknown name.
func ParseOrdering(word string) (o Ordering, ok bool) {
	for i, name := range orderingNames {
		if word == name {
			return Ordering(i), true
		}
	}
	return OrderingAuto, false
}
