package cli

import (
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

// ringEvent says that the ring at an end has grown, or why it has no more slots.
type ringEvent struct {
	Event string `json:"event"`
	End   string `json:"end"`            // "local" or "remote"
	Slots int    `json:"slots"`          // that it has now
	Text  string `json:"text,omitempty"` // why it has no more
}

func ringEventOf(e *xfer.Event) ringEvent {
	return ringEvent{"ring", endText(endOf(e.Remote)), e.Slots, printable.Text(e.Text)}
}

// grownText is ringEvent for people.
func (n endNames) grownText(e *xfer.Event) string {
	end := n.here
	if e.Remote {
		end = n.there
	}
	if e.Text != "" {
		return fmt.Sprintf("the ring %s has only %s: %s", end, count(int64(e.Slots), "slot", "slots"), printable.Text(e.Text))
	}
	return fmt.Sprintf("the ring %s has %s now, so that more is under way", end, count(int64(e.Slots), "slot", "slots"))
}
