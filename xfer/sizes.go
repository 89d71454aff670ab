package xfer

import "gdrcp/xfer/internal/wire"

// wire.FileSizes are those of the options.
func (o *Options) fileSizes() wire.FileSizes {
	s := wire.FileSizes{MinBytes: uint64(max(0, o.MinFileBytes))}
	if o.MaxFileBytes != 0 {
		s.MaxBytes = uint64(max(0, o.MaxFileBytes)) + 1
	}
	return s
}
