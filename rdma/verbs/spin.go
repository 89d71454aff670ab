//go:build linux && cgo

package verbs

import "time"

// spinner decides for how long a Wait polls before it sleeps: twice as long as
// recent Waits took, because then the next completion is likely to arrive
// during polling, which saves an interrupt and two thread switches. If the gaps
// between completions are longer than most, polling would only take a processor
// for that time and Wait would sleep afterwards, so it does not poll at all.
type spinner struct {
	most   time.Duration // 0: never poll
	recent time.Duration // average duration of recent Waits; each counts an eighth
}

const (
	// atOnce is the maximum duration of a Wait that need not wait. It carries
	// no information about gaps.
	atOnce = 3 * time.Microsecond
	// wakeUp is the time that a Wait takes beyond the gap if it has slept.
	wakeUp = 15 * time.Microsecond
)

func newSpinner(most time.Duration) spinner { return spinner{most: most, recent: most / 2} }

// long returns for how long the next Wait should poll.
func (s *spinner) long() time.Duration {
	if s.recent > s.most+wakeUp {
		return 0
	}
	return min(2*s.recent, s.most)
}

// waited records how long a Wait took until there were completions. The duration is capped
// at a few times most, so that a rail that becomes active again soon polls again.
func (s *spinner) waited(took time.Duration) {
	if took <= atOnce {
		return
	}
	s.recent += (min(took, 4*s.most) - s.recent) / 8
}
