package xfer

import (
	"context"
	"fmt"
	"strings"

	"gdrcp/internal/printable"
	"gdrcp/xfer/internal/wire"
)

// maxWarnings bounds the warnings of a session. A sink has one for each file system, or for each
// deviation from the options.
const maxWarnings = 64

// warn sends a warning to the user at the client, whichever end that is. A client that does not
// know the message gets none.
func (k *sink) warn(ctx context.Context, text string) error {
	if k.warnings.Add(1) > maxWarnings {
		return nil
	}
	if k.Session.Client {
		k.Session.Report(Event{Kind: EventWarning, Text: text})
		return nil
	}
	if !k.Session.KnowsWarnings {
		return nil
	}
	text = strings.ToValidUTF8(text[:min(len(text), wire.MaxTextBytes)], "")
	return k.Session.Ctl.Send(ctx, wire.MsgWarning, []byte(text))
}

// hearWarning records a warning of the sink.
func (s *source) hearWarning(body []byte) error {
	if s.warnings++; s.warnings > maxWarnings || !s.Session.Client {
		return fmt.Errorf("%w: warning %d", ErrProtocol, s.warnings)
	}
	if err := wire.CheckWarning(body); err != nil {
		return err
	}
	s.Session.Report(Event{Kind: EventWarning, Text: printable.Text(string(body)), Remote: true})
	return nil
}
