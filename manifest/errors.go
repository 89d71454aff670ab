package manifest

import "errors"

// What can be wrong with a manifest. Every error of this package that blames
// its input wraps exactly one of these, and readers add the number of the line.
var (
	// ErrFormat: the text is not what the format allows.
	ErrFormat = errors.New("malformed manifest")
	// ErrTruncated: the text ends before its trailer, so nothing says that the
	// entries read so far are all there were.
	ErrTruncated = errors.New("manifest is truncated")
	// ErrVersion: a manifest, but of a version that this package does not know.
	ErrVersion = errors.New("unknown manifest version")
	// ErrOrder: entries do not strictly ascend bytewise by path, or "." is not
	// the first of them.
	ErrOrder = errors.New("manifest entries out of order")
	// ErrRoot: a root or a count does not follow from what it covers.
	ErrRoot = errors.New("manifest root does not match")
	// ErrPath: a path that may not stand in a manifest.
	ErrPath = errors.New("invalid path")
	// ErrEntry: an entry whose fields contradict each other.
	ErrEntry = errors.New("invalid entry")
	// ErrIncomparable: two manifests whose digests cannot be compared, because
	// they were made with other algorithms or piece sizes.
	ErrIncomparable = errors.New("manifests cannot be compared")
)

// ErrVoid is no fault of the manifest: its writer began a file of several
// pieces and could not finish it, and readers are to forget it.
var ErrVoid = errors.New("file was not finished")
