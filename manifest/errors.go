package manifest

import "errors"

// The faults of a manifest. Every error of this package that blames its input wraps
// exactly one of these, and readers add the number of the line.
var (
	// ErrFormat: the format does not allow the text.
	ErrFormat = errors.New("malformed manifest")
	// ErrTruncated: the text ends before its last line, so nothing says that the
	// entries read so far are all.
	ErrTruncated = errors.New("manifest is truncated")
	// ErrVersion: the manifest has a version that this package does not know.
	ErrVersion = errors.New("unknown manifest version")
	// ErrOrder: entries do not strictly ascend bytewise by path, or "." is not
	// the first of them.
	ErrOrder = errors.New("manifest entries out of order")
	// ErrRoot: a root or a count does not match the entries or pieces that it covers.
	ErrRoot = errors.New("manifest root does not match")
	// ErrPath: no manifest may hold the path.
	ErrPath = errors.New("invalid path")
	// ErrEntry: the fields of an entry contradict each other.
	ErrEntry = errors.New("invalid entry")
	// ErrIncomparable: the digests of two manifests cannot be compared, because they
	// were made with different algorithms or piece sizes.
	ErrIncomparable = errors.New("manifests cannot be compared")
)

// ErrVoid is no fault of the manifest: its writer began a file of several pieces and
// could not finish the file, and readers must forget it.
var ErrVoid = errors.New("file was not finished")
