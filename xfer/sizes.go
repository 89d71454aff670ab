package xfer

import (
	"fmt"

	"gdrcp/manifest"
)

// flagSizes: files beyond the sizes that the hello has are not transferred.
const flagSizes = 1 << 29

// Tags of a hello's fields beside flagSizes.
const (
	tagMinFile = 21 | mustUnderstand // bytes that a file has at the least
	tagMaxFile = 22 | mustUnderstand // one more than the bytes that it has at the most; 0 for any number
)

// fileSizes are the sizes of the files that are transferred, with rsync's meaning: they
// say nothing of what is at the source, so that --delete leaves the others alone.
type fileSizes struct {
	minBytes uint64
	maxBytes uint64 // one more than the most; 0 for any number
}

// fileSizes are those of the options.
func (o *Options) fileSizes() fileSizes {
	s := fileSizes{minBytes: uint64(max(0, o.MinFileBytes))}
	if o.MaxFileBytes != 0 {
		s.maxBytes = uint64(max(0, o.MaxFileBytes)) + 1
	}
	return s
}

func (s *fileSizes) isSet() bool { return *s != fileSizes{} }

// keeps says why a file is not transferred, or nothing.
func (s *fileSizes) keeps(e *manifest.Entry) string {
	switch size := uint64(e.Size); {
	case e.Type != manifest.File:
	case s.maxBytes > 0 && size >= s.maxBytes:
		return "larger than --max-size"
	case size < s.minBytes:
		return "smaller than --min-size"
	}
	return ""
}

// check holds a hello's sizes to its flags.
func (s *fileSizes) check(flags uint64) error {
	if s.isSet() != (flags&flagSizes != 0) {
		return fmt.Errorf("%w: sizes of files from %d, and flags %#x", ErrProtocol, s.minBytes, flags)
	}
	return nil
}

// appendTo encodes what is set.
func (s *fileSizes) appendTo(w *tlvWriter) {
	if s.minBytes != 0 {
		w.uint(tagMinFile, s.minBytes)
	}
	if s.maxBytes != 0 {
		w.uint(tagMaxFile, s.maxBytes)
	}
}
