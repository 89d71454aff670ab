// Package args is the grammar of the command line: it sorts arguments into commands, options and
// operands, in the order that urfave/cli reads. Options may appear anywhere before "--". If gdrcp
// lacks an option that similar programs have, the error names the alternative.
package args

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gdrcp/internal/printable"
)

// ErrUsage is a usage error.
var ErrUsage = errors.New("usage")

// UsageErrorf returns an ErrUsage with a text for the user.
func UsageErrorf(format string, values ...any) error {
	return fmt.Errorf("%w: %s", ErrUsage, fmt.Sprintf(format, values...))
}

// Quote returns an argument unchanged, or in quotes if it could be misread without them.
func Quote(s string) string {
	if s == "" || printable.Text(s) != s || strings.ContainsAny(s, " \"'`\\") {
		return strconv.Quote(s)
	}
	return s
}
