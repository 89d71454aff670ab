package cli

import (
	"fmt"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

// railText describes what happened to a rail during a copy.
func railText(e *xfer.Event) string {
	left := count(int64(e.RailsLeft), "rail", "rails")
	why := printable.Text(e.Text)
	switch e.Kind {
	case xfer.EventRailLost:
		if e.RailsLeft == 0 {
			return fmt.Sprintf("rail %s lost, and no other is left: trying again: %s", e.Rail, why)
		}
		return fmt.Sprintf("rail %s lost, the copy goes on over %s: %s", e.Rail, left, why)
	case xfer.EventRailJoined:
		return fmt.Sprintf("rail %s joined: the copy has %s", e.Rail, left)
	}
	return fmt.Sprintf("rail %s is not used: %s", e.Rail, why)
}

// isRailEvent reports whether an event is about a rail.
func isRailEvent(k xfer.EventKind) bool {
	return k == xfer.EventRailLost || k == xfer.EventRailJoined || k == xfer.EventRailUnused
}

// tellRail prints what happened to a rail. A loss is always printed, and so is the
// return of the rail after it.
func (c *copyRun) tellRail(e *xfer.Event) {
	if e.Kind == xfer.EventRailLost {
		c.railLost.Store(true)
	}
	if c.verbose || !c.quiet && e.Kind != xfer.EventRailUnused && c.railLost.Load() {
		c.console.line("gdrcp: %s", railText(e))
	}
}

// railEvent is an event about a rail, for --json.
type railEvent struct {
	Event string `json:"event"`
	Rail  string `json:"rail"`
	State string `json:"state"` // "lost", "joined" or "unused"
	Text  string `json:"text,omitempty"`
	Rails int    `json:"rails"`
}

func railEventOf(e *xfer.Event) railEvent {
	state := "unused"
	switch e.Kind {
	case xfer.EventRailLost:
		state = "lost"
	case xfer.EventRailJoined:
		state = "joined"
	}
	return railEvent{"rail", e.Rail, state, printable.Text(e.Text), e.RailsLeft}
}

// transportsText names the transports that carried payload, in the order of their use.
func transportsText(s *xfer.Summary) string {
	names := []string{s.Link.Transport}
	for i := range s.Rails {
		if t := s.Rails[i].Transport; t != names[0] && s.Rails[i].Bytes > 0 && s.Link.Transport != localTransport && len(names) == 1 {
			names = append(names, t)
		}
	}
	return strings.Join(names, " and ")
}

// slotsText says, for -v, on which node the local slots are, and at which ends they had
// relaxed ordering.
func slotsText(s *xfer.Summary) string {
	var rails []string
	for i := range s.Rails {
		if s.Rails[i].Relaxed {
			rails = append(rails, s.Rails[i].Rail)
		}
	}
	var parts []string
	var nodes []string
	for _, n := range s.NUMANodes {
		nodes = append(nodes, strconv.Itoa(n))
	}
	switch len(nodes) {
	case 0:
	case 1:
		parts = append(parts, "on NUMA node "+nodes[0])
	default:
		parts = append(parts, "on NUMA nodes "+strings.Join(nodes, " and "))
	}
	if len(rails) > 0 {
		parts = append(parts, "relaxed ordering at "+strings.Join(rails, ", "))
	}
	if len(parts) == 0 {
		return ""
	}
	return "slots here: " + strings.Join(parts, "; ")
}

// railsText says which rails carried a copy, if there were several or one was lost.
func railsText(s *xfer.Summary) string {
	var parts []string
	for i := range s.Rails {
		r := &s.Rails[i]
		part := fmt.Sprintf("%s %s", r.Rail, bytesText(float64(r.Bytes), 1))
		if r.Faults > 0 {
			part += fmt.Sprintf(" (lost %s, down for %s)", count(int64(r.Faults), "time", "times"), secondsText(r.DownSeconds))
		}
		parts = append(parts, part)
	}
	if len(parts) < 2 && (len(s.Rails) == 0 || s.Rails[0].Faults == 0) {
		return ""
	}
	return "rails: " + strings.Join(parts, ", ")
}
