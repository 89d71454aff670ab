package cli

import (
	"gdrcp/internal/printable"
	"gdrcp/internal/remote"
	"gdrcp/xfer"
)

// endNames are the names of a copy's ends for its user.
type endNames struct{ here, there string }

// ends names the ends of a plan, or of a copy that another host has asked for:
// its user is at neither of them.
func (p *plan) ends(relayed *remote.Run) endNames {
	switch {
	case relayed != nil:
		return endNames{"at " + relayed.From, "at " + relayed.To}
	case p.local && p.push:
		return endNames{"at the source", "at the destination"}
	case p.local:
		return endNames{"at the destination", "at the source"}
	case p.far != nil:
		return endNames{"here", "at " + p.far.host}
	}
	return endNames{"here", "at " + p.endpoint.String()}
}

// text returns the text of an entry's event, with the name of its end.
func (n endNames) text(e *xfer.Event) string {
	text := printable.Text(e.Text)
	switch e.End {
	case xfer.ThisEnd:
		text += " (" + n.here + ")"
	case xfer.OtherEnd:
		text += " (" + n.there + ")"
	}
	return text
}

// endText names an end in events.
func endText(end xfer.End) string {
	switch end {
	case xfer.ThisEnd:
		return "local"
	case xfer.OtherEnd:
		return "remote"
	}
	return ""
}
