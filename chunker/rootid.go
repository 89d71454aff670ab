package chunker

import (
	"encoding/binary"

	"gdrcp/internal/fsys"
)

// A copy that lost its connection continues with another process, which may have another
// directory at the same path. So each attempt compares the identity of the directories that
// it works in with those of the attempt before.

// maxSourcesIdentified bounds how many of several sources RootID looks at.
const maxSourcesIdentified = 256

// RootID identifies the source, as that of dest.Sink does the destination: the directory at the top
// of the tree, or else the files and directories that are its sources, the first ones if they
// are very many.
func (t *Tree) RootID() string {
	if t.isTop {
		h, err := t.dirs.Get(".")
		if err != nil {
			return ""
		}
		defer h.Release()
		return fsys.IdentityOf(h.FD)
	}
	var b []byte
	for _, s := range t.sources[:min(len(t.sources), maxSourcesIdentified)] {
		a, err := t.lookUp(s.Name)
		if err != nil {
			a = attributes{} // it counts as nothing, and the walk reports it
		}
		b = binary.LittleEndian.AppendUint64(b, a.stamp.Dev)
		b = binary.LittleEndian.AppendUint64(b, a.stamp.Ino)
	}
	return fsys.IdentityFrom(b)
}
