package args

import (
	_ "embed" // for missing
	"slices"
	"strings"
)

//go:embed missing
var missing string

// Elsewhere returns an error that names the alternative to an option of rsync that
// gdrcp lacks. name has no dashes. The error is nil if rsync has no such option.
func Elsewhere(name string) error {
	for line := range strings.Lines(missing) {
		names, instead, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.HasPrefix(line, "#") && slices.Contains(strings.Fields(names), name) {
			return UsageErrorf("gdrcp has no %s: %s", Dashed(name), instead)
		}
	}
	return nil
}
