package chunker

import (
	"sync/atomic"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// Wrote counts what was written to files, by rung.
func (s *Sink) Wrote() *fileset.IOBytes { return &s.wrote }

// deviceRungs is what a file system of the sink is known to have.
type deviceRungs struct {
	fsType int64 // statfs(2)
	// noDirect and noDontCache: it has refused IODirect, and IODontCache.
	noDirect, noDontCache atomic.Bool
	// dropsBehind: the kernel is of a release that IODontCache can be left to.
	dropsBehind bool
	// aheadBytes is how much space files have that is not written yet.
	aheadBytes atomic.Int64
}

// AsksServer reports whether entries are made on a file system whose calls may wait for a
// server.
func (s *Sink) AsksServer() bool {
	d := s.deviceOf(s.base)
	return d != nil && fsys.AsksServer(uint32(d.rungs.fsType))
}
