package cli

import (
	"errors"
	"strconv"
	"strings"

	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// rsyncNoOps are options of rsync that have no effect, because gdrcp does the same
// without them or has no such feature.
type rsyncNoOps struct {
	partial, wholeFile, sparse, human, secluded bool
}

func (h *rsyncNoOps) flags() []cli.Flag {
	return about(topicHabits,
		allOn("whole-file", "nothing: a file that is copied is sent whole, unless --checksum compares it", []*bool{&h.wholeFile}, "W"),
		allOn("sparse", "nothing: holes of files stay holes, and zeros of files without holes are written", []*bool{&h.sparse}, "S"),
		allOn("partial", "nothing: gdrcp goes on with a file that did not arrive whole anyway. -P means only --progress", []*bool{&h.partial}),
		allOn("human-readable", "nothing: numbers are readable anyway. The same holds for -h with SRC and DST, wherever it stands", []*bool{&h.human}),
		allOn("secluded-args", "nothing: the shell of the other host sees no path", []*bool{&h.secluded}, "s", "protect-args"),
	)
}

// explain prints what gdrcp does if that differs from what rsync does for an option.
func (h *rsyncNoOps) explain(say func(format string, args ...any)) {
	if h.sparse {
		say("gdrcp: --sparse: holes stay holes, and zeros of files without holes are written")
	}
}

// compressAuto is -z, which means --compress auto.
func compressAuto(to *xfer.Compress) cli.Flag {
	return &switchFlag{valueFlag{&cli.GenericFlag{
		Name: "compress-auto", Aliases: []string{"z"}, Usage: "the same as --compress auto", Value: &compressAutoValue{to},
	}}, false}
}

// compressAutoValue is the value of -z.
type compressAutoValue struct{ to *xfer.Compress }

// Set implements flag.Value.
func (c *compressAutoValue) Set(s string) error {
	if s != "true" {
		return errors.New("not true")
	}
	*c.to = xfer.CompressAuto
	return nil
}

// String implements flag.Value.
func (c *compressAutoValue) String() string {
	return strconv.FormatBool(c.to != nil && *c.to == xfer.CompressAuto)
}

// IsBoolFlag reports to package flag that no value follows.
func (c *compressAutoValue) IsBoolFlag() bool { return true }

// infoFlags parses the flags of rsync's --info. gdrcp knows those that are also
// options. A number after a flag is its level; 0 turns the flag off.
func infoFlags(progress, noProgress, stats *bool) *checkedValue {
	return &checkedValue{set: func(s string) error {
		for word := range strings.SplitSeq(strings.ToLower(s), ",") {
			name := strings.TrimRight(word, "0123456789")
			on := strings.Trim(word[len(name):], "0") != "" || name == word
			switch name {
			case "progress":
				*progress, *noProgress = on, !on
			case "stats":
				*stats = on
			default:
				return errors.New("gdrcp has only the flags progress, progress2 and stats; -v tells every entry")
			}
		}
		return nil
	}}
}
