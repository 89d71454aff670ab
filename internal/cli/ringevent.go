package cli

import (
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

// ringEvent says why the ring here has fewer slots than were agreed.
type ringEvent struct {
	Event string `json:"event"`
	End   string `json:"end"`   // "local"
	Slots int    `json:"slots"` // that it has
	Text  string `json:"text"`  // why it has no more
}

func ringEventOf(e *xfer.Event) ringEvent {
	return ringEvent{"ring", endText(xfer.ThisEnd), e.Slots, printable.Text(e.Text)}
}

// ringText is ringEvent for people.
func (n endNames) ringText(e *xfer.Event) string {
	return fmt.Sprintf("the ring %s has only %s: %s", n.here, count(int64(e.Slots), "slot", "slots"), printable.Text(e.Text))
}
