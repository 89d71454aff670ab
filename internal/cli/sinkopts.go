package cli

import (
	"errors"
	"fmt"
	"strconv"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/fileset"
	"gdrcp/internal/printable"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// sinkFlags returns the options that control decisions of the destination.
func sinkFlags(o *xfer.Options) []cli.Flag {
	return about(topicDest,
		onOff("update", "keep files that are newer at the destination", &o.Update, "u"),
		onOff("ignore-times", "with -t: also copy files of the same time and size. Without -I they are kept, and not compared", &o.IgnoreTimes, "I"),
		onOff("size-only", "keep files of the same size, whatever their time", &o.SizeOnly),
		onOff("checksum", "compare files of the same size by the digests of their pieces, read at both ends at once, and send only the pieces that differ. A file that is the same stays", &o.Checksum, "c"),
		&cli.StringFlag{Name: "basis-manifest", Usage: "with --checksum, in a copy from another machine to this one: take the digests of the files at DST from manifest `FILE`, made there by gdrcp manifest create --identities, and do not read those whose inode, size and times are as recorded. The end tells them as trusted, not as verified", Destination: &o.BasisManifest},
		onOff("append-verify", "take a file that is shorter at the destination for the beginning of the source's: compare it, and send the rest and what differs. Keep files that are not shorter", &o.AppendVerify),
		onOff("inplace", "write into files that exist at the destination and have no other hard links, and not into a new file beside. It takes no room, but a file whose copy fails is then partly old and partly new, and others see it change", &o.InPlace),
		onOff("ignore-existing", "keep what exists at the destination; directories are filled", &o.IgnoreExisting),
		onOff("existing", "copy only to what exists at the destination: create nothing new", &o.Existing, "ignore-non-existing"),
		checkedFlag("max-size", "`SIZE` do not copy larger files. SIZE is as in rsync: bytes, or with B, K, M or G, like 1.5M", fileSize(func(n int64) {
			if o.MaxFileBytes = n; n == 0 {
				o.MaxFileBytes = -1
			}
		})),
		checkedFlag("min-size", "`SIZE` do not copy smaller files", fileSize(func(n int64) { o.MinFileBytes = n })),
		onOffAlso("delete", "with -r: after the copy, delete what the source does not have. Nothing is deleted if the source "+
			"could not be listed or read whole. An entry that is in the way of one of another kind is deleted, too: for a file even a directory with all that is in it", &o.Delete, []*bool{&o.DeleteExcluded},
			"del", "delete-before", "delete-during", "delete-delay", "delete-after"),
		onOff("delete-excluded", "like --delete, and also delete what rules exclude", &o.DeleteExcluded),
		checkedFlag("max-delete", "`N` delete at most N files and directories, and say so if there are more (exit code 3)", maxDelete(&o.MaxDelete)),
		onOff("atomic-dir", "with -r: let the directory SRC appear under the name DST whole, in one step, or not at all. A directory that is there is replaced, "+
			"and files that are the same are taken from it", &o.Whole),
		&cli.BoolFlag{Name: "no-space-check", Usage: "begin even if the destination's free space is too small for what is to be copied", Destination: &o.NoSpaceCheck},
		onOff("force-replace", "with --atomic-dir: also replace a directory that no such copy made, and that has other entries at its top than SRC", &o.ForceReplace),
		onOff("dry-run", "tell what would be done, and change nothing at either end", &o.DryRun, "n"),
	)
}

// partialDir is the value of an option for a directory of partial files.
func partialDir(to *string) *checkedValue {
	return &checkedValue{set: func(s string) error {
		*to = s
		return fileset.CheckPartialDir(s)
	}}
}

// maxDelete is a number of files; 0 means that nothing may be deleted.
func maxDelete(to *int64) *checkedValue {
	return &checkedValue{set: func(s string) error {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < -1 {
			return errors.New("not a whole number of 0 or more")
		}
		*to = n
		if n == 0 {
			*to = -1
		}
		return nil
	}}
}

// reportDeleted prints a deletion with -v, and in a dry run always.
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

// deletedText says what happened to an entry that was to be deleted.
func deletedText(e *xfer.Event) string {
	if e.Text != "" {
		return fmt.Sprintf("delete %s: %s", args.Quote(deletedPath(e)), printable.Text(e.Text))
	}
	return "deleting " + args.Quote(deletedPath(e))
}

// deletedPath returns the path of a deletion. The path of a directory ends in a slash.
func deletedPath(e *xfer.Event) string {
	if e.Dir {
		return e.Path + "/"
	}
	return e.Path
}

// keptText says which entry the destination kept or refused, and why.
func keptText(e *xfer.Event) string {
	return fmt.Sprintf("%s: %s, %s", args.Quote(e.Path), keptWord(e), printable.Text(e.Text))
}

func keptWord(e *xfer.Event) string {
	if e.LeftOut {
		return "left out"
	}
	return "kept"
}

// tellUndone prints what a copy that finished left undone.
func (c *copyRun) tellUndone(s *xfer.Summary) {
	if c.json {
		return
	}
	for _, text := range undoneTexts(s) {
		c.console.line("gdrcp: %s", text)
	}
}

// unkeptText says which attribute entries lack.
func unkeptText(u *xfer.Unkept) string {
	of := "of " + args.Quote(u.First)
	switch {
	case u.AtLeast:
		of = fmt.Sprintf("of %s or more, first %s", count(u.Entries, "entry", "entries"), args.Quote(u.First))
	case u.Entries > 1:
		of = fmt.Sprintf("of %d entries, first %s", u.Entries, args.Quote(u.First))
	}
	if u.Dir != "." {
		of += ", on the file system at " + args.Quote(u.Dir)
	}
	return fmt.Sprintf("not kept: %s %s: %s", printable.Text(u.Attribute), of, printable.Text(u.Reason))
}

// undoneTexts says which attributes were not kept, why --delete deleted nothing, and
// that a tree did not appear.
func undoneTexts(s *xfer.Summary) (texts []string) {
	for i := range s.Unkept {
		texts = append(texts, unkeptText(&s.Unkept[i]))
	}
	if s.NotDeleted {
		texts = append(texts, "nothing is deleted: the source could not be listed or read whole, or is not what the manifest says")
	}
	if s.Withheld {
		texts = append(texts, "the tree is not in place: its name has what it had. The same command goes on with what has arrived")
	}
	return texts
}
