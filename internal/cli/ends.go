package cli

import (
	"errors"
	"strings"

	"gdrcp/internal/printable"
	"gdrcp/internal/remote"
	"gdrcp/xfer"
)

// endNames are the names of a copy's two ends in messages.
type endNames struct{ here, there string }

// ends names the ends of a plan, or of a copy that another host asked for and whose
// user is at neither end.
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

// text returns the text of an entry's event, with the name of the end.
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

// placedError is an error whose text names the hosts that it is about.
type placedError struct {
	error
	text string
}

func (p *placedError) Error() string { return p.text }
func (p *placedError) Unwrap() error { return p.error }

// nameHosts adds host names to the error of a copy that another host asked for. Its user knows
// neither the addresses of the second host nor which host the error is about.
func nameHosts(err error, relayed *remote.Run) error {
	var texts []string
	for _, part := range split(err) {
		said := (*xfer.RemoteError)(nil)
		if errors.As(part, &said) {
			said.Peer = relayed.To
		}
		text := lineOf(part)
		for _, a := range relayed.Addresses {
			// Elsewhere in the text the address is the information that the user needs.
			if rest, ok := strings.CutPrefix(text, a.Addr.String()+": "); ok {
				text = relayed.To + ": " + rest
			}
		}
		if said == nil && !strings.HasPrefix(text, relayed.From+" ") {
			text = relayed.From + ": " + text
		}
		if !contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return &placedError{err, strings.Join(texts, "; ")}
}

// endOf returns the end that an event is about.
func endOf(remote bool) xfer.End {
	if remote {
		return xfer.OtherEnd
	}
	return xfer.ThisEnd
}

// endText returns an end's name for events.
func endText(end xfer.End) string {
	switch end {
	case xfer.ThisEnd:
		return "local"
	case xfer.OtherEnd:
		return "remote"
	}
	return ""
}

// afreshText explains why a later attempt does not continue the earlier ones.
func (n endNames) afreshText(e *xfer.Event) string {
	end := n.here
	if e.Remote {
		end = n.there
	}
	return "the files " + end + " may not be those of the last attempt; the copy starts afresh"
}
