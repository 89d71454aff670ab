package wire

import (
	"fmt"
	"unicode/utf8"
)

// CheckWarning checks the body of MsgWarning, which is a text.
func CheckWarning(body []byte) error {
	if len(body) == 0 || len(body) > MaxTextBytes || !utf8.Valid(body) {
		return fmt.Errorf("%w: a warning of %d bytes", ErrProtocol, len(body))
	}
	return nil
}
