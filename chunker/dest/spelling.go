package dest

import (
	"encoding/binary"
	"hash/maphash"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
)

// If names fold, looking a name up may find what has another name, and only the listing
// of the directory shows which name that is.

// find is fstatat(2) for the name of an entry. ErrTaken: the name leads to something that the
// directory lists by another name only.
func (s *Sink) find(h *dirHandle, name string, st *unix.Stat_t) error {
	if err := fsys.Fstatat(h.FD, name, st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return err
	}
	return s.checkSpelling(h, name)
}

// checkSpelling checks that a name which leads to something is one that the directory lists.
// It does nothing if names do not fold. ErrTaken: see find.
func (s *Sink) checkSpelling(h *dirHandle, name string) error {
	if !s.mayFold(h) || s.spellings.has(h, name) {
		return nil
	}
	names, listed, err := listedFrom(h, name)
	if err != nil && h.searchOnly && (s.opt.OnlyLooks || h.onlyAdds()) {
		return nil // nothing is replaced
	}
	if err != nil {
		return err
	}
	if listed {
		s.spellings.note(h, names)
		return nil
	}
	for range twinTries {
		var now unix.Stat_t
		if err := fsys.Fstatat(h.FD, name, &now, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return err // it was removed meanwhile
		}
		if twin := twinOf(h, name, &now); twin != "" {
			return &takenError{name, twin}
		}
	}
	return ErrTaken
}

// checkTwin is checkSpelling for a name that may lead to nothing. To list a directory for each
// new name in it would take the square of their number.
func (s *Sink) checkTwin(h *dirHandle, name string) error {
	if !s.mayFold(h) {
		return nil
	}
	var st unix.Stat_t
	if err := s.find(h, name, &st); err != unix.ENOENT {
		return err
	}
	return nil
}

// twinTries is how often the twin of a name is looked for: it may be replaced just then.
const twinTries = 3

// maxListed bounds how many names of a directory are taken at a time.
const maxListed = 1 << 14

// listedFrom returns the names that the directory lists, from name on in their order, at most
// maxListed: the entries after this one come in that order. listed reports whether it lists
// name.
func listedFrom(h *dirHandle, name string) (names []string, listed bool, err error) {
	cut := func() {
		slices.Sort(names)
		names = names[:min(len(names), maxListed)]
	}
	err = eachNameIn(h.FD, func(b []byte) {
		if string(b) < name {
			return
		}
		listed = listed || string(b) == name
		if names = append(names, string(b)); len(names) == 2*maxListed {
			cut()
		}
	})
	cut()
	return names, listed, err
}

// twinOf looks for the name by which the directory lists what another name leads to: one that
// differs in case only, or whose attributes are the same. It is for a message, so that the
// first fit will do, and empty if there is none.
func twinOf(h *dirHandle, name string, of *unix.Stat_t) (twin string) {
	same := ""
	_ = eachNameIn(h.FD, func(b []byte) {
		listed := string(b)
		if strings.EqualFold(listed, name) {
			twin = listed
		}
		if twin != "" || same != "" || fileset.IsReserved(b) || isASCII(listed) && isASCII(name) && listed[0] != name[0] {
			return
		}
		var st unix.Stat_t
		if fsys.Fstatat(h.FD, listed, &st, unix.AT_SYMLINK_NOFOLLOW) != nil {
			return
		}
		st.Ino, st.Atim = of.Ino, of.Atim // not every file system has inode numbers that stay
		if st == *of {
			same = listed
		}
	})
	if twin == "" {
		twin = same
	}
	return twin
}

// spellings are names that directories that may fold have listed. What is not in it has to be
// looked for in the directory.
type spellings struct {
	mu          sync.Mutex
	seed        maphash.Seed
	seen        map[uint64]struct{}
	directories uint64 // how many have a number
}

// maxSpellings bounds the names: at the bound all are forgotten.
const maxSpellings = 4 * maxListed

func (k *spellings) has(h *dirHandle, name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if h.spelt == 0 {
		return false
	}
	_, is := k.seen[k.hash(h, name)]
	return is
}

func (k *spellings) note(h *dirHandle, names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.seen == nil || len(k.seen)+len(names) > maxSpellings {
		k.seed, k.seen = maphash.MakeSeed(), make(map[uint64]struct{})
	}
	if h.spelt == 0 {
		k.directories++
		h.spelt = k.directories
	}
	for _, name := range names {
		k.seen[k.hash(h, name)] = struct{}{}
	}
}

// hash is of the directory, too. By its random seed no peer can know names whose hashes are
// the same.
func (k *spellings) hash(h *dirHandle, name string) uint64 {
	b := binary.NativeEndian.AppendUint64(make([]byte, 0, 8+256), h.spelt)
	return maphash.Bytes(k.seed, append(b, name...))
}
