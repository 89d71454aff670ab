package chunker

import (
	"sync"

	"gdrcp/internal/fileset"
)

// unkept is a list that many goroutines add to.
type unkept struct {
	mu   sync.Mutex
	list fileset.UnkeptList
}

func (k *unkept) add(u fileset.Unkept) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list.Add(u)
}

func (k *unkept) take() fileset.UnkeptList {
	k.mu.Lock()
	defer k.mu.Unlock()
	l := k.list
	k.list = nil
	return l
}

// TakeUnkept returns what could not be kept since the last call. If attributes are
// required, that is nothing: the entries fail. What it returns is of entries that may not
// have ended yet.
func (s *Sink) TakeUnkept() fileset.UnkeptList { return s.unkept.take() }

// lacks notes that an entry, whose name is in dir, does not get an attribute because of err,
// and returns nil: an attribute never costs content. If attributes are required, it
// returns err, and the entry fails. A nil err changes nothing.
func (s *Sink) lacks(attribute, entry string, dir *dirHandle, err error) error {
	if err == nil || s.opt.RequireAttributes {
		return err
	}
	u := fileset.Unkept{Attribute: attribute, Dir: ".", Entries: 1, First: entry, Reason: err.Error()}
	if d := s.deviceOf(dir); d != nil {
		u.Dir = d.at
	}
	s.unkept.add(u)
	return nil
}
