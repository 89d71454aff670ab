package args

import (
	_ "embed" // for missing
	"slices"
	"strings"
)

//go:embed missing
var missing string

// Elsewhere returns the error of an option, by its name without dashes, that rsync has
// and gdrcp lacks, with what to use instead. It is nil if rsync has no option of that name.
func Elsewhere(name string) error {
	for line := range strings.Lines(missing) {
		names, instead, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.HasPrefix(line, "#") && slices.Contains(strings.Fields(names), name) {
			return UsageErrorf("gdrcp has no %s: %s", Dashed(name), instead)
		}
	}
	return nil
}
