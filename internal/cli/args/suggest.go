package args

import (
	"strings"

	"github.com/xrash/smetrics"
)

// unknownOption returns the error for an option that a command lacks. of is the
// command's words. The error may suggest one of the options likely.
func unknownOption(written, name, of string, likely map[string]Option) error {
	if err := Elsewhere(name); err != nil && of == "" {
		return err
	}
	meant, command := "", ""
	if near := nearest(name, likely); near != "" && len(name) > 1 {
		meant = ": did you mean --" + near + "?"
	}
	if of != "" {
		command, of = " of gdrcp "+of, of+" "
	}
	return UsageErrorf("unknown option %s%s%s (gdrcp %s--help lists them)", Quote(written), command, meant, of)
}

// nearest returns the long option that the user probably meant by name, or "". It uses
// the distance of urfave/cli, but no other option may be as near.
func nearest(name string, options map[string]Option) string {
	const least, boosted, prefix = 0.9, 0.7, 4
	best, likeness := "", least
	for candidate, o := range options {
		if len(candidate) == 1 || o.hidden || strings.HasPrefix(candidate, "no-") != strings.HasPrefix(name, "no-") {
			continue // a user who writes --no-NAME does not mean the opposite
		}
		switch l := smetrics.JaroWinkler(name, candidate, boosted, prefix); {
		case l > likeness:
			best, likeness = candidate, l
		case l == likeness:
			best = ""
		}
	}
	return best
}
