package chunker

import (
	"gdrcp/internal/fileset"
)

// makeRoom removes what is at leaf in a directory, to make room for an entry of another
// kind. It reports whether the place is free, or in a dry run would be.
func (s *Sink) makeRoom(h *dirHandle, leaf string) bool {
	r := s.newRemover()
	r.inTheWay, r.onlyEmpty = true, s.deletes.Unsure != nil && s.deletes.Unsure()
	defer r.close()
	return r.remove(h.fd, leaf, s.entryPath(fileset.JoinPath(h.path, leaf)))
}

// makeRoomForDir removes what is in the place of a directory. A directory that is there
// by now is the wanted one, and stays.
func (s *Sink) makeRoomForDir(h *dirHandle, leaf string) bool {
	if s.deletes == nil {
		return false
	}
	r := remover{sink: s, rules: s.deletes, inTheWay: true}
	path := s.entryPath(fileset.JoinPath(h.path, leaf))
	isDir, there, stays := r.look(h.fd, leaf, path)
	return !there || !isDir && !stays && r.unlink(h.fd, leaf, path)
}

// tryRoom is makeRoom in a dry run, or with forDir makeRoomForDir.
func (s *Sink) tryRoom(path string, forDir bool) bool {
	h, leaf, err := s.parentOf("make", path)
	if err != nil {
		return false
	}
	defer h.release()
	if forDir {
		return s.makeRoomForDir(h, leaf)
	}
	return s.makeRoom(h, leaf)
}
