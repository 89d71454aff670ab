package args

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
)

// ErrUsage is a command line that makes no sense.
var ErrUsage = errors.New("usage")

// UsageErrorf is an ErrUsage with a text for the user behind it.
func UsageErrorf(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, values...))
}

// Quote shows an argument as it was given, in quotes where it could be
// misread without.
func Quote(s string) string {
	if s == "" || printable.Text(s) != s || strings.ContainsAny(s, " \"'`\\") {
		return strconv.Quote(s)
	}
	return s
}
