package xfer

import (
	"crypto/sha256"
	"encoding/binary"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// A copy of a tree into the tree itself, through another process of the same host, would have no
// end, because the source would find what the sink makes. So the sink reports in the hello or the
// welcome where the copy goes, and the source leaves that place out. The report is a mark that is
// meaningful only on the same host.

// hostMark is the input that the marks of a session share: a prefix, the session's id
// and the host's boot id (random(4)).
type hostMark []byte

// markHost returns nil if this process cannot read the host's boot id.
func markHost(id [16]byte) hostMark {
	boot, err := fsys.BootID()
	if err != nil || len(boot) == 0 {
		return nil
	}
	return append(append(hostMark("gdrcp place 1"), id[:]...), boot...)
}

// of is the mark of a directory.
func (h hostMark) of(dir manifest.Inode) wire.PlaceMark {
	var space [128]byte
	b := append(space[:0], h...)
	b = binary.LittleEndian.AppendUint64(b, dir.Dev)
	return sha256.Sum256(binary.LittleEndian.AppendUint64(b, dir.Ino))
}

// intoOf is where a sink's copy goes. It is nil if this host cannot determine it.
func intoOf(id [16]byte, store *dest.Sink) *wire.IntoPlace {
	host := markHost(id)
	if host == nil {
		return nil
	}
	dir, leaf := store.Into()
	return &wire.IntoPlace{Mark: host.of(dir), Leaf: leaf}
}

// avoid makes the source's walk leave out what the sink makes of it. names are those of the sources
// at the destination.
func avoid(s *flow.Session, w *chunker.Walker, names []string) {
	if s.Into == nil {
		return
	}
	host := markHost(s.ID)
	if host == nil {
		return
	}
	if s.Into.Leaf != "" {
		names = []string{s.Into.Leaf}
	} else if len(names) == 1 && names[0] == "." {
		names = nil // the source's contents go there
	}
	mark := s.Into.Mark
	w.Avoid(func(dir manifest.Inode) bool { return host.of(dir) == mark }, names)
}
