package cli

import (
	"slices"

	"github.com/urfave/cli/v2"
)

// flags returns the options of a copy, by topic.
func (c *copyRun) flags() []cli.Flag {
	o := &c.options
	return slices.Concat(
		about(topicSelect,
			onOffBoth("recursive", "copy directories", []*bool{&o.Recursive, &c.selection.recursive}, "r"),
			onOff("follow", "copy what symbolic links lead to instead of the links", &o.Follow, "L", "copy-links"),
			onOff("one-file-system", "stay on the file system of SRC: of what is mounted below SRC, copy only the directory itself", &o.OneFileSystem, "x"),
		),
		about(topicSelect, c.selection.flags()...),
		metadataFlags(o),
		about(topicCheck,
			onOff("copy-growing", "copy files that grow while they are read, up to the size that they had at first, and name each", &o.CopyGrowing),
			checkedFlag("hash", "`xxh3|blake3|crc32c|sha256` how pieces are digested (xxh3; blake3 where a GPU has the slots)", hash(&o.Hash)),
			&cli.StringFlag{Name: "manifest", Usage: "copy only what is as manifest `FILE` says; the rest is left out (exit code 4)", Destination: &o.Manifest},
			checkedFlag("write-manifest", "`FILE` write a manifest of what was copied to FILE (zstd if it ends in .zst)", fileOnly(&o.WriteManifest)),
		),
		sinkFlags(o),
		about(topicDest,
			&cli.BoolFlag{Name: "no-fsync", Usage: "do not wait until the copied data is on the disk", Destination: &o.NoFsync},
			&cli.BoolFlag{Name: "no-resume", Usage: "begin every file anew, and keep nothing of a file that does not arrive whole", Destination: &o.NoResume},
			checkedFlag("partial-dir", "`DIR` keep what arrives of a large file in DIR until the file is complete: below each file's directory, if DIR is a name, "+
				"or all in one directory, if DIR is an absolute path, on the destination's file system", partialDir(&o.PartialDir)),
			ioFlag(o),
			transfersFlag(o),
			onOff("verify-written", "read every file back from the disk before it gets its name, and check it (exit code 4 if the disk has lost something)", &o.VerifyWritten),
			onOff("recheck", "read back everything that an earlier copy brought of a file before that counts", &o.Recheck),
		),
		linkFlags(o, checkedFlag("require", "`verbs|gpudirect` fail (exit code 5) instead of falling back to tcp, or to GPU memory by way of host memory",
			oneOf(&o.Require, "verbs", "gpudirect"))),
		about(topicTransport,
			checkedFlag("compress", "`off|zstd|s2|auto` compress each chunk that becomes smaller; useful over tcp; chunks of at most 8MiB (off)", compression(&o.Compress)),
			compressAuto(&o.Compress),
		),
		c.wire.flags(),
		gpuFlags(o),
		c.ssh.flags(),
		about(topicAccess, keyFileFlag("the key that the server of rdma://host/path knows", &c.keyFile)),
		c.limitFlags(),
		about(topicOutput,
			&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "tell errors only", Destination: &c.quiet},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "tell every entry, more about the connection, and the roots", Destination: &c.verbose},
			onOffUnless("progress", "tell every 10 seconds how far the copy is, even if standard error is not a terminal", &c.progress, &c.noProgress, "P"),
			checkedFlag("info", "`progress|progress2|stats` rsync's name for --progress and --stats; with commas between", infoFlags(&c.progress, &c.noProgress, &c.stats)),
			onOff("stats", "print the numbers of the copy at the end, one a line", &c.stats),
			&cli.BoolFlag{Name: "json", Usage: "print events on standard output, as JSON, one a line", Destination: &c.json},
			checkedFlag("log-file", "`FILE` append to FILE a line for every entry, and for how the copy begins and ends", fileOnly(&c.logName)),
			versionFlag(),
		),
		c.noOps.flags(),
	)
}
