package args

import "strings"

// unknownOption is the error of an option that a command does not have. of is the
// command's words. likely are options one of which may have been meant.
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

// nearest is the long option that name was mistyped from, as far as that can be
// said, or empty: one of at most a third of its letters is another, and no
// other option is as near.
func nearest(name string, options map[string]Option) string {
	best, least, tied := "", len(name)/3+1, false
	for candidate, o := range options {
		if len(candidate) == 1 || o.hidden || strings.HasPrefix(candidate, "no-") != strings.HasPrefix(name, "no-") {
			continue // of --no-NAME the contrary is not what was meant
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

// maxMistakes is how many letters may be wrong in a name however long.
const maxMistakes = 3

// distance is how many letters have to be put in, left out or replaced, or
// neighbours changed over, to make b of a: the optimal string alignment distance.
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
