package chunker

import (
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

// sharedPace is a statPace that several goroutines use.
type sharedPace struct {
	mu   sync.Mutex
	pace statPace
}

// with calls f with the pace, which no other goroutine uses meanwhile.
func (p *sharedPace) with(f func(*statPace)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.pace)
}

// LooksAreSlow reports whether Look has taken long lately, so that LookAhead is worth its
// while.
func (s *Sink) LooksAreSlow() (slow bool) {
	s.lookPace.with(func(p *statPace) { slow = p.isSlow() })
	return slow
}

// LookAhead asks for what is at several entries' places at once, so that the kernel has it,
// for seconds on most network file systems, when Look is called for each in turn. It
// blocks until all have been asked for.
func (s *Sink) LookAhead(paths []string) {
	atOnce(len(paths), func(i int) {
		var st unix.Stat_t
		if target, err := s.target("look at", paths[i]); err == nil {
			_ = s.lstat(target, &st)
		}
	})
}

// lookAt is fstatat(2) for Look, which is timed now and then.
func (s *Sink) lookAt(h *dirHandle, leaf string, st *unix.Stat_t) error {
	measures := false
	s.lookPace.with(func(p *statPace) { measures = p.measures() })
	if !measures {
		return fsys.Fstatat(h.fd, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
	}
	began := time.Now()
	err := fsys.Fstatat(h.fd, leaf, st, unix.AT_SYMLINK_NOFOLLOW)
	took := time.Since(began)
	s.lookPace.with(func(p *statPace) { p.note(took) })
	return err
}
