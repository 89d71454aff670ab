//go:build linux && cgo

package verbs

import "time"

// spinner says for how long a Wait polls before it sleeps: for twice as long as the last
// Waits took, because then the next completion is likely to come while it polls, which
// spares an interrupt and two switches of threads. Where completions come further apart
// than most, polling would only take a processor for that time and sleep afterwards: then
// it does not poll at all.
type spinner struct {
	most   time.Duration // 0: never poll
	recent time.Duration // what the last Waits took, of which each counts an eighth
}

const (
	// atOnce is what a Wait takes at most that need not wait. It tells nothing of gaps.
	atOnce = 3 * time.Microsecond
	// wakeUp is what a Wait takes beyond the gap where it has slept.
	wakeUp = 15 * time.Microsecond
)

func newSpinner(most time.Duration) spinner { return spinner{most: most, recent: most / 2} }

// long returns for how long the next Wait is to poll.
func (s *spinner) long() time.Duration {
	if s.recent > s.most+wakeUp {
		return 0
	}
	return min(2*s.recent, s.most)
}

// waited notes what a Wait took until there were completions. A long pause counts no more
// than a few times the most, so that a rail that is in use again soon polls again.
func (s *spinner) waited(took time.Duration) {
	if took <= atOnce {
		return
	}
	s.recent += (min(took, 4*s.most) - s.recent) / 8
}
