package chunker

import (
	"time"

	"gdrcp/chunker/internal/dirs"
	"gdrcp/chunker/internal/parallel"
)

// Where asking for a file's attributes takes long, as of a server, a walk would spend its
// time waiting: one wait for each file, of which there may be millions. There it asks for
// those of the names that come next, several at once.
const (
	// statsAhead is how many names are asked for together, several at a time.
	statsAhead = 128
	// freshStat bounds the age of an answer, which the walk may come to late: the window of
	// a copy is full for a while, or a large directory lies between two names.
	freshStat = time.Second
)

// statAhead is what was asked of the names of one directory ahead of the walk.
type statAhead struct {
	names   []string // not taken yet, in order
	answers []statAnswer
	asked   time.Time
}

type statAnswer struct {
	attributes attributes
	err        error
	took       time.Duration
}

// take returns the answer for a name, if there is a fresh one.
func (s *statAhead) take(leaf string) (a statAnswer, ok bool) {
	for len(s.names) > 0 {
		name := s.names[0]
		a = s.answers[0]
		s.names, s.answers = s.names[1:], s.answers[1:]
		if name == leaf {
			return a, time.Since(s.asked) < freshStat
		}
	}
	s.names, s.answers = nil, nil
	return statAnswer{}, false
}

// stat is describeAt for an entry of a level. What it asks for ahead are the level's names that
// come next.
func (w *Walker) stat(l *level, dir *dirs.Dir, leaf, path string) (attributes, error) {
	if a, ok := l.ahead.take(leaf); ok {
		w.pace.Note(a.took)
		return a.attributes, a.err
	}
	if !w.pace.Measures() {
		return w.tree.describeAt(dir, leaf, path)
	}
	began := time.Now()
	a, err := w.tree.describeAt(dir, leaf, path)
	w.pace.Note(time.Since(began))
	if w.pace.IsSlow() && l.path != "" && w.list == nil {
		w.lookAhead(l, dir)
	}
	return a, err
}

// lookAhead asks for the attributes of the level's next names. It returns when all answers
// are there. Of a directory whose names were spilled only one name at a time is known.
func (w *Walker) lookAhead(l *level, dir *dirs.Dir) {
	names := w.names.Ahead(&l.names, statsAhead)
	if len(names) < 2 {
		return
	}
	answers := make([]statAnswer, len(names))
	l.ahead = statAhead{names: names, answers: answers, asked: time.Now()}
	parallel.Each(len(names), func(i int) {
		began := time.Now()
		a := &answers[i]
		a.attributes, a.err = w.tree.describeAt(dir, names[i], l.childPath(names[i]))
		a.took = time.Since(began)
	})
}
