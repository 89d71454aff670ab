package audit

// Tally counts what an audit reads. It must be safe for concurrent use.
// xfer.Tally is a Tally.
type Tally interface {
	AddTotal(n int64)         // bytes of a file that will be read
	SetTotalKnown(known bool) // whether the walk has ended, so that the total is final
	AddBytes(n int64)         // bytes that were read and digested
	AddFile()                 // a file that was read, or that is only in the tree or only in the manifest
}

// uncounted is a Tally that counts nothing.
type uncounted struct{}

func (uncounted) AddTotal(int64)     {}
func (uncounted) SetTotalKnown(bool) {}
func (uncounted) AddBytes(int64)     {}
func (uncounted) AddFile()           {}
