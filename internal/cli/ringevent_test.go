package cli

import (
	"testing"

	"gdrcp/xfer"
)

// A ring with fewer slots is reported with the name of its end, on the screen and in
// the log.
func TestRingEventsNameTheirEnd(t *testing.T) {
	for _, c := range []struct {
		e    xfer.Event
		want string
		json ringEvent
	}{
		{xfer.Event{Slots: 16, Text: "no\nroom"}, `the ring at the source has only 16 slots: no\nroom`, ringEvent{"ring", "local", 16, `no\nroom`}},
	} {
		ends := (&plan{local: true, push: true}).ends(nil)
		if got := ends.ringText(&c.e); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
		if got := ringEventOf(&c.e); got != c.json {
			t.Errorf("%+v, want %+v", got, c.json)
		}
	}
}

// If both ends are in one process, there are two rings.
func TestHeapHasRoomForTheRings(t *testing.T) {
	t.Setenv("GOGC", "100") // no limit
	for _, c := range []struct {
		had  xfer.Load
		want int
	}{
		{xfer.Load{Sessions: 1, Slots: 16}, 64},
		{xfer.Load{Sessions: 2, Slots: 32}, 128},
		{xfer.Load{Sessions: 1, Slots: 96}, 96},
	} {
		r := copyRun{need: c.had}
		if r.needs(64); r.need.Slots != c.want {
			t.Errorf("%+v: room for %d slots, want %d", c.had, r.need.Slots, c.want)
		}
	}
}
