// Package args is the grammar of the command line: it sorts arguments into commands,
// options and operands, and puts them into the order that the library of commands
// reads. Options may stand anywhere before "--". For an option that other programs have
// and gdrcp lacks, the error says what to use instead.
package args

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
)

// ErrUsage is the error of a command line that makes no sense.
var ErrUsage = errors.New("usage")

// UsageErrorf returns an ErrUsage with a text for the user.
func UsageErrorf(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, values...))
}

// Quote returns an argument as it was given, in quotes if it could be misread without
// them.
func Quote(s string) string {
	if s == "" || printable.Text(s) != s || strings.ContainsAny(s, " \"'`\\") {
		return strconv.Quote(s)
	}
	return s
}
