package args

import "strings"

// unknownOption returns the error of an option that a command lacks. of is the
// command's words. likely are options of which the user may have meant one.
func unknownOption(written, of string, likely map[string]Option) error {
	meant := ""
	if near := nearest(strings.TrimPrefix(written, "--"), likely); near != "" {
		meant = ": did you mean --" + near + "?"
	}
	if of == "" {
		return UsageErrorf("unknown option %s%s (gdrcp --help lists them)", Quote(written), meant)
	}
	return UsageErrorf("unknown option %s of gdrcp %s%s (gdrcp %s --help lists them)", Quote(written), of, meant, of)
}

// nearest returns the long option that the user probably meant by name, or nothing. At
// most a third of its letters may differ, and no other option may be as near.
func nearest(name string, options map[string]Option) string {
	best, least, tied := "", len(name)/3+1, false
	for candidate, o := range options {
		if len(candidate) == 1 || o.hidden || strings.HasPrefix(candidate, "no-") != strings.HasPrefix(name, "no-") {
			continue // a user who writes --no-NAME does not mean the contrary
		}
		switch d := distance(name, candidate); {
		case d < least:
			best, least, tied = candidate, d, false
		case d == least && best != "":
			tied = true
		}
	}
	if tied || least > maxMistakes {
		return ""
	}
	return best
}

// maxMistakes is how many letters may be wrong in a name of any length.
const maxMistakes = 3

// distance returns how many letters must be inserted, deleted or replaced, or
// neighbours swapped, to turn a into b: the optimal string alignment distance.
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			replaced := last[j]
			if a[i] != b[j] {
				replaced++
			}
			row[j+1] = min(replaced, last[j+1]+1, row[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
