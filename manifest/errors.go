package manifest

import "errors"

// The faults of a manifest. Every error of this package that is caused by its
// input wraps exactly one of these, and readers add the line number.
var (
	// ErrFormat: the text violates the format.
	ErrFormat = errors.New("malformed manifest")
	// ErrTruncated: the text ends before its last line, so more entries may have followed.
	ErrTruncated = errors.New("manifest is truncated")
	// ErrVersion: the manifest has a version that this package does not know.
	ErrVersion = errors.New("unknown manifest version")
	// ErrOrder: entries do not strictly ascend bytewise by path, or "." is not
	// the first of them.
	ErrOrder = errors.New("manifest entries out of order")
	// ErrRoot: a root or a count does not match the entries or pieces that it covers.
	ErrRoot = errors.New("manifest root does not match")
	// ErrPath: the path is not allowed in a manifest.
	ErrPath = errors.New("invalid path")
	// ErrEntry: the fields of an entry contradict each other.
	ErrEntry = errors.New("invalid entry")
	// ErrIncomparable: the digests of two manifests cannot be compared, because they
	// were made with different algorithms or piece sizes.
	ErrIncomparable = errors.New("manifests cannot be compared")
)

// ErrVoid is not a fault of the manifest: its writer began a file of several
// pieces and could not finish it, and readers must drop the file.
var ErrVoid = errors.New("file was not finished")
