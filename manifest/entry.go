// Package manifest describes the files of a copy: entries, the digests of their
// pieces, and their roots. It does not depend on how data is transferred, and
// starts no goroutines.
package manifest

// EntryType is the kind of an entry.
type EntryType byte

// The types, each with its letter in a manifest.
const (
	File    EntryType = 'f'
	Dir     EntryType = 'd'
	Symlink EntryType = 'l'
)

// Entry is one file, directory or symbolic link of a tree.
type Entry struct {
	Type EntryType
	// Path is relative to the tree's top, slash-separated, and may contain any byte except
	// NUL; it has no empty, "." or ".." component. The top directory itself is ".".
	Path string
	// Size is a file's length in bytes; 0 for other entries.
	Size int64
	// Mode holds the permission bits, 07777.
	Mode uint32
	// MtimeNs is the modification time, in nanoseconds since 1970.
	MtimeNs int64
	// Target is the text of a symbolic link.
	Target string
	// Root is a file's digest: see Tree. Unset until the file has been read.
	Root Digest
}

// Digest holds a digest of any of the algorithms; shorter ones leave the rest zero.
type Digest [32]byte
