package cli

import (
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// metadataFlags returns the options that select which metadata of the source is kept.
// Names and meanings are rsync's.
func metadataFlags(o *xfer.Options) []cli.Flag {
	return about(topicKept,
		allOn("archive", "the same as -rlptgo", []*bool{&o.Recursive, &o.Links, &o.Perms, &o.Times, &o.Group, &o.Owner}, "a"),
		onOff("links", "copy symbolic links as links; without it and without -L they are left out", &o.Links, "l"),
		onOff("perms", "keep permission bits", &o.Perms, "p"),
		onOff("times", "keep times of change", &o.Times, "t"),
		onOff("owner", "keep the owner, where the user who writes may set it (root)", &o.Owner, "o"),
		onOff("group", "keep the group, where the user who writes may set it", &o.Group, "g"),
		onOff("hard-links", "keep hard links between the files that are copied", &o.HardLinks, "H"),
		onOff("xattrs", "keep extended attributes: those of users and, where root writes, all others but the system's", &o.Xattrs, "X"),
		onOff("require-attributes", "let an entry fail that does not get all the attributes that the copy keeps. Without it, the content is copied in any case, and what could not be kept is counted at the end (exit code 3)", &o.RequireAttributes),
		onOff("acls", "keep POSIX ACLs of files and directories, by name as -o and -g do; this implies -p", &o.ACLs, "A"),
		onOff("privileged", "from a gdrcp serve, keep also what gives programs rights: set-ID bits of files, and where root writes with -X attributes of all namespaces but the system's, such as capabilities", &o.Privileged),
		onOff("numeric-ids", "keep owner and group by number, not by name", &o.NumericIDs),
	)
}
