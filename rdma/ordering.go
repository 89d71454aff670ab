package rdma

import "fmt"

// Ordering says whether what a device writes to and reads from Unordered regions may pass
// what it wrote and read before, on the way between device and memory (PCI Express Base
// Specification, 2.4.1, relaxed ordering; ibv_reg_mr(3), IBV_ACCESS_RELAXED_ORDERING). A
// completion still means that all of its data is there, and so does a Read that flushes:
// requests to read do not pass requests to write, whatever those are marked as.
type Ordering uint8

// The orderings.
const (
	// OrderingAuto is relaxed where the processor is known to be faster so.
	OrderingAuto Ordering = iota
	// OrderingRelaxed is relaxed everywhere. Register fails with ErrUnsupported where it
	// cannot ask for that.
	OrderingRelaxed
	// OrderingStrict is never relaxed.
	OrderingStrict
)

// orderingNames are the words of the command line.
var orderingNames = [...]string{"auto", "on", "off"}

// String is the word for the ordering, as ParseOrdering takes it.
func (o Ordering) String() string {
	if int(o) < len(orderingNames) {
		return orderingNames[o]
	}
	return fmt.Sprintf("ordering %d", uint8(o))
}

// ParseOrdering is String's inverse. ok is false for a word that is no ordering.
func ParseOrdering(word string) (o Ordering, ok bool) {
	for i, name := range orderingNames {
		if word == name {
			return Ordering(i), true
		}
	}
	return OrderingAuto, false
}
