package cli

import (
	"errors"
	"fmt"
	"strconv"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// sinkFlags are the options by which the destination decides.
func sinkFlags(o *xfer.Options) []cli.Flag {
	return about(topicDest,
		onOff("update", "keep files that are newer at the destination", &o.Update, "u"),
		onOff("ignore-times", "with -t: copy also files of the same time and size; without it they are kept, and not compared", &o.IgnoreTimes, "I"),
		onOff("size-only", "keep files of the same size, whatever their time", &o.SizeOnly),
		onOff("ignore-existing", "keep what exists at the destination; directories are filled", &o.IgnoreExisting),
		onOff("existing", "make nothing that does not exist at the destination", &o.Existing, "ignore-non-existing"),
		checkedFlag("max-size", "`SIZE` copy no larger file. SIZE is rsync's: bytes, or with B, K, M or G as 1.5M", fileSize(func(n int64) {
			if o.MaxFileBytes = n; n == 0 {
				o.MaxFileBytes = -1
			}
		})),
		checkedFlag("min-size", "`SIZE` copy no smaller file", fileSize(func(n int64) { o.MinFileBytes = n })),
		onOffAlso("delete", "with -r: delete, after all was copied, what the source does not have; nothing where the source "+
			"could not be listed or read whole. What is in the way of an entry of another kind goes, too: for a file a directory with all that is in it", &o.Delete, []*bool{&o.DeleteExcluded},
			"del", "delete-before", "delete-during", "delete-delay", "delete-after"),
		onOff("delete-excluded", "likewise, and also what rules exclude", &o.DeleteExcluded),
		checkedFlag("max-delete", "`N` delete at most N files and directories; where there are more, that is told (exit code 3)", maxDelete(&o.MaxDelete)),
		onOff("dry-run", "tell what would be done, and change nothing at either end", &o.DryRun, "n"),
	)
}

// maxDelete is a number of files, for which 0 is none.
func maxDelete(to *int64) *checkedValue {
	return &checkedValue{set: func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < -1 {
			return errors.New("not a number from 0 on")
		}
		*to = n
		if n == 0 {
			*to = -1
		}
		return nil
	}}
}

// reportDeleted tells what was deleted, with -v, and in a dry run always.
func (c *copyRun) reportDeleted(e *xfer.Event) {
	switch {
	case c.json:
		c.events.emit(deletedEventOf(e))
	case c.quiet:
	case e.Text != "":
		c.console.line("gdrcp: %s", deletedText(e))
	case c.verbose || e.DryRun:
		c.console.line("%s", deletedText(e))
	}
}

// deletedText is what became of something that was to be deleted.
func deletedText(e *xfer.Event) string {
	if e.Text != "" {
		return fmt.Sprintf("delete %s: %s", args.Quote(deletedPath(e)), printable.Text(e.Text))
	}
	return "deleting " + args.Quote(deletedPath(e))
}

// deletedPath is its path, of a directory with a slash behind.
func deletedPath(e *xfer.Event) string {
	if e.Dir {
		return e.Path + "/"
	}
	return e.Path
}

// keptText is what the destination kept, and why.
func keptText(e *xfer.Event) string {
	return fmt.Sprintf("%s: kept, %s", args.Quote(e.Path), printable.Text(e.Text))
}

// tellNotDeleted says why --delete deleted nothing.
func (c *copyRun) tellNotDeleted(s *xfer.Summary) {
	if s.NotDeleted && !c.json {
		c.console.line("gdrcp: the source could not be listed or read whole, or is not what the manifest says: nothing is deleted")
	}
}
