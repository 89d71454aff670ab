package cli

import (
	"fmt"

	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

// ringEvent reports why the local ring has fewer slots than were agreed.
type ringEvent struct {
	Event string `json:"event"`
	End   string `json:"end"`   // "local"
	Slots int    `json:"slots"` // the actual number
	Text  string `json:"text"`  // why there are no more
}

func ringEventOf(e *xfer.Event) ringEvent {
	return ringEvent{"ring", endText(xfer.ThisEnd), e.Slots, printable.Text(e.Text)}
}

// ringText returns the text of a ringEvent.
func (n endNames) ringText(e *xfer.Event) string {
	return fmt.Sprintf("the ring %s has only %s: %s", n.here, count(int64(e.Slots), "slot", "slots"), printable.Text(e.Text))
}
