package cli

import "gdrcp/internal/cmdline"

// details returns texts about options that manuals and docs/cli.md have and help lacks,
// by the words of the command and the option's long name. They are whole sentences.
func details() map[string]string {
	return map[string]string{
		"--links":            "Each link that is left out is told in a line; the exit code stays 0.",
		"--owner":            "Else the files belong to the user who writes, and that is no error. If even root may not set the owner (NFS with root_squash, an id that a container does not have), the file is copied and that is reported (exit code 3); see --require-attributes.",
		"--group":            "A user who is not root may set the groups that the user is in. All else is as for --owner.",
		"--hard-links":       "The bytes of such a file travel once.",
		"--xattrs":           "A user keeps the attributes of the namespace user. If root writes, and neither below the root of a gdrcp serve nor from one, all attributes are kept but those of the namespace system. Those that cannot be set are reported (exit code 3); see --require-attributes.",
		"--acls":             "Where the source has no ACL, that of the destination is removed, also the one that a directory gives to what is made in it. Where an ACL cannot be set, nobody may do more than at the source, and that is reported (exit code 3); see --require-attributes. Users and groups go by name, or with --numeric-ids by number.",
		"--privileged":       "Between hosts by ssh, and within a host, they are always kept. The key has to have the word all-attributes for the server to send attributes outside the namespace user.",
		"--numeric-ids":      "Without it owner and group go by name if the name exists at the end that writes, else by number.",
		"--follow":           "Without -r and -l a link that is named as SRC is followed anyway.",
		"--one-file-system":  "That also holds where -L follows a link to a directory elsewhere, and for subvolumes of btrfs. A directory that --files-from names counts as a SRC. --delete then leaves alone what DST has in such a directory, what lies on another file system at DST, and directories there with a mount below them.",
		"--exclude":          "All filter options can be given many times.",
		"--from0":            "The option also applies to options before it.",
		"--update":           "Times are compared in seconds. A kept file keeps its attributes. Links, and files in the place of an entry of another kind, are copied.",
		"--size-only":        "The option also applies with -I, and without -t.",
		"--existing":         "What is in a directory that does not exist there is not made either.",
		"--max-size":         "A larger file is still at the source: --delete leaves alone what the destination has in its place. 100MB is of powers of 1000, and 100M-1 is a byte less than 100M.",
		"--min-size":         "A smaller file is still at the source, as for --max-size.",
		"--delete-excluded":  "Rules of the receiving side (P, R, the modifier r) still protect files.",
		"--max-delete":       "Another run deletes up to N more.",
		"--copy-growing":     "An example is the log of a job that runs. Each is read twice, and not copied (exit code 3) if the two readings differ. Otherwise the exit code stays 0. Without the option such a file is not copied (exit code 3). With --manifest the option does nothing.",
		"--atomic-dir":       "DST is the name of the tree itself. Until all of the tree is there, verified and on the disk, it is made beside DST. If anything fails, DST has what it had (exit code 3 or 4). A directory of other contents needs --force-replace. docs/guide/files-and-deletion.md has the rest.",
		"--force-replace":    "Without it a directory is replaced only if an earlier --atomic-dir made it, or if everything at its top is also at the top of SRC. What is lost with it is listed as deleted, and --max-delete bounds it.",
		"--dry-run":          "No data is sent and no file is read, so a dry run cannot tell what would fail only then. --delete lists what it would delete, -v every entry.",
		"--manifest":         "Hash and piece size are those of the manifest; another --hash is an error. FILE is read twice, so it is a regular file.",
		"--compress":         "auto is s2, and stops trying for a while when it does not help. A chunk that does not shrink by an eighth is sent as it is.",
		"--compress-auto":    "If both options are given, the last one counts.",
		"--require":          "verbs cannot be combined with --transport tcp. gpudirect applies to the ends with --gpu or --remote-gpu, and takes a path between GPU and RDMA device that leads through the processor, too.",
		"--gpu":              "If no GPU can be used (there is none, it is too old, its memory is taken, its kernels do not load or run), auto means host memory, and a line says so. An index counts as gdrcp devices and nvidia-smi do, unless CUDA_DEVICE_ORDER says otherwise. A UUID begins with GPU-, that of an instance of a divided GPU with MIG-; a first part that no other UUID begins with is enough. A PCI address is 0000:3b:00.0 or 3b:00.0.",
		"--rail":             "A device that is not there or cannot be used is an error (exit code 5). --rail cannot be combined with --transport tcp.",
		"--remote-rail":      "Verbs to another device of that end, or TCP, is an error (exit code 5).",
		"--encrypt":          "Encryption takes time of both processors. With --require gpudirect and GPU memory it is an error (exit code 5).",
		"--ack-timeout":      "18 is 1.1 s. Each end has its own. UCX's UCX_RC_TIMEOUT is the time itself. With 18 a path may be gone for some seconds. Whatever N is, an end that heard nothing for 10 s gives up; with 20 (4.3 s) it does so before a packet is sent a third time. On networks that lose packets a smaller N is faster (16 is 0.27 s). iWARP does not use it.",
		"--relaxed-ordering": "Chunks are looked at only when all of them has arrived, so both are safe. auto is on for AMD's processors from Zen on, and for slots in GPU memory on Intel's from Sapphire Rapids on. on is an error (exit code 5) where the RDMA device or the library refuses it. Each end has its own. Over TCP the option does nothing.",
		"--bwlimit":          "The rate is an average, of at least 512 bytes a second. 100MB is of powers of 1000. It counts data as it travels, not headers and messages. The ring is made of the slots that go in a second, two at the least: where this end receives, these come at once.",
		"--max-memory":       "Where SRC and DST are both on this machine, SIZE is for both ends. The end that sends has one slot more. With SRC - the buffers of standard input count, too. -v tells how many slots there are. A SIZE that has no room for the smallest ring is an error (exit code 2).",
		"--timeout":          "The exit code is 1 then. Progress means that data was read from a stream, verified or written, or that an entry was found, examined for --delete, or finished. A slow sync of a disk is not progress.",
		"--retries":          "gdrcp waits about 1, 2, 4 seconds and so on, a minute at most, and goes on where the copy was. docs/guide/files-and-deletion.md says what counts as a lost connection.",
		"--progress":         "--no-progress also hides the line that is drawn on a terminal.",
		"--log-file":         "A line is for what is copied where, for the connection, for each entry that ended or was deleted, and for how the copy ended, with time and process as rsync has them: 2026/11/21 20:45:00 [4711] copied /data/model to rdma://node2:7473/in/model, 1048576 bytes. Names in the log have no percent-encoding. FILE is opened before anything is connected. If FILE cannot be written, an error at the end says so (exit code 1, unless 3 or 4 applies).",
		"--quiet":            "Entries that were not copied are told, too, except skipped ones: special files, and symbolic links without -l and -L. -q cannot be combined with -v or -P.",
		"--verbose":          "A line also tells where the slots were, if they were in GPU memory, on one of several NUMA nodes, or had relaxed ordering.",
		"--json":             "docs/json-events.md has all events. With DST - they go to standard error.",
		"--rsh":              "Spaces separate words, and quotes hold them together, as for rsync. gdrcp runs COMMAND [-l user] host PATH far-end.",
		"--remote-path":      "PATH may be more than a path: --remote-path 'cd /data && gdrcp'.",
		"--bootstrap":        "docs/guide/servers-and-keys.md says what is tried, and which directory is trusted.",

		"serve --listen":              "ADDR is an IP address (IPv6 in brackets) or localhost, the port 65534 at most. :PORT stands for [::]:PORT, which is all addresses of both families.",
		"serve --read-only":           "They can run gdrcp bench, too.",
		"serve --ack-timeout":         "The option applies to what the server sends.",
		"serve --relaxed-ordering":    "The option applies to the server's slots.",
		"serve --exit-on-gpu-failure": "After some errors, and when a GPU hangs, the program can use no GPU until it is started again. Until then clients get host memory. The systemd unit has the option.",
		"serve --max-memory":          "A session gets at least 2 slots.",
		"serve --max-wait":            "A client waits while a limit of the server, or of its key, leaves no room for it. A line tells the client that it waits. After SECONDS the server refuses it (exit code 1); 0 refuses at once. 1024 clients may wait, 256 of them with the same key.",
		"serve --verbose":             "Each line has the client's address.",

		"manifest create --json":     "--json needs -o FILE.",
		"manifest create --progress": "--no-progress also hides the line that is drawn on a terminal.",
		"manifest verify --progress": "--no-progress also hides the line that is drawn on a terminal.",
		"bench --rounds":             "At least 10 are made.",
		"bench --json":               "docs/json-events.md has all events.",

		"--require-attributes": "A mode, owner, group, time or extended attribute that cannot be kept, or read, is otherwise reported once for each file system, with a count. Rights are then only taken away: if a file does not get its group, members of another group get no more than all others.",
	}
}

// common returns the options that --help shows for a command with many options, by
// their long names, with short texts. If it is nil, --help shows all of them with the
// first words of their texts.
func common(command string) map[string]string {
	switch command {
	case "":
		return map[string]string{
			"recursive": "copy directories", "archive": "-rlptgo: links, modes, times, owners and groups", "update": "keep files that are newer at the destination",
			"checksum": "compare contents, and send only what differs", "exclude": "leave out what matches, as rsync does", "files-from": "copy only what FILE names",
			"delete": "delete what the source does not have", "atomic-dir": "replace a directory in one step, or not at all",
			"dry-run": "tell what would be done, and change nothing", "manifest": "copy only what is as manifest FILE says",
			"write-manifest": "write a manifest of what was copied", "verify-written": "read every file back from the disk and check it",
			"rsh": "the remote shell for host:path (ssh)", "key-file": "the key that the server of rdma://host knows", "bootstrap": "copy gdrcp to the other host where it is missing",
			"transport": "auto is verbs where it reaches the peer", "require": "fail instead of falling back", "gpu": "slots in the memory of a GPU",
			"encrypt": "seal all data, not only messages", "compress-auto": "compress chunks that become smaller", "bwlimit": "KiB a second, or with K, M or G",
			"quiet": "tell errors only", "verbose": "tell every entry, and the connection", "json": "print events as JSON, one a line",
			"version": "print the version", "help": "print this", "help-all": "print help on all options",
		}
	case "serve":
		return map[string]string{
			"root": "the directory to serve, with --key-file", "access-file": "the keys and what they open", "key-file": "the one key that admits clients",
			"read-only": "clients can only read", "listen": "where to listen", "transport": "what to offer", "gpu": "whether slots may be in GPU memory here",
			"max-sessions": "how many clients are served at once", "max-wait": "how long a client waits for room", "max-memory": "memory for rings and buffers of all sessions",
			"bwlimit": "KiB a second of all clients together", "verbose": "tell every entry that was not copied", "help": "print this", "help-all": "print help on all options",
		}
	case "bench":
		return map[string]string{
			"bytes": "how much to send for each digest", "hash": "digests to measure with", "disk": "measure what directory DIR takes and gives",
			"rounds": "round trips for each latency", "transport": "auto is verbs where it reaches the server", "require": "fail instead of falling back",
			"key-file": "the key that the server knows", "json": "print events as JSON, one a line", "help": "print this", "help-all": "print help on all options",
		}
	case "manifest create":
		return map[string]string{
			"output": "where to write it", "follow": "read what symbolic links lead to", "exclude": "leave out what matches, as rsync does",
			"files-from": "read only what FILE names", "hash": "how pieces are digested", "identities": "also for --basis-manifest of a later copy",
			"rsh": "the remote shell for host:path (ssh)", "bootstrap": "copy gdrcp to the other host where it is missing", "quiet": "tell errors only",
			"progress": "tell every 10 seconds how far it is", "json": "print events as JSON, one a line", "help": "print this", "help-all": "print help on all options",
		}
	}
	return nil
}

// sections returns the sections of a command's manual, apart from its options.
func sections(command string) []cmdline.Section {
	filesOf := files(command)
	if filesOf == nil {
		return nil
	}
	list := cmdline.Section{Title: "Files", Items: filesOf}
	if command != "" {
		return []cmdline.Section{list}
	}
	return []cmdline.Section{
		{Title: "Targets", Text: "They are those of cp and scp. The directory that holds DST must exist.", Items: []cmdline.Item{
			{Term: "a file to a directory", Text: "DST/name"},
			{Term: "a file to a file, or to nothing", Text: "DST; a file there is replaced"},
			{Term: "a file to nothing, with a trailing slash", Text: "an error"},
			{Term: "a directory (-r) to a directory", Text: "DST/name, and in it what is in the source"},
			{Term: "a directory (-r) to nothing", Text: "DST becomes the directory"},
			{Term: "a directory (-r) to a file", Text: "an error"},
			{Term: "dir/. (-r) to a directory", Text: "the contents of dir go into DST. The sources ., .. and / act in the same way"},
			{Term: "several to a directory", Text: "each as above; any other DST is an error. A source without a name of its own (dir/.) is a usage error here. Of sources with the same name the second one fails (exit code 3)"},
		}},
		{Title: "Copying again", Text: "The same command again copies what is missing or has changed. With -t (so with -a) a file of the same size and time at the destination " +
			"is kept and not compared. -I copies every file. An interrupted copy leaves no file half-written under its name. Files that had " +
			"arrived whole are kept the next time; one of 16 MiB or more that had not goes on where it was, unless it has changed at the source. Where a directory has become DST, DST is " +
			"there the next time: write dir/. for dir then, or the copy goes to DST/dir."},
		{Title: "Terms", Items: []cmdline.Item{
			{Term: "piece", Text: "1 MiB of a file, or all of a smaller file. Each piece has a digest"},
			{Term: "chunk", Text: "what is sent at once: a part of a large file, or many small files"},
			{Term: "slot", Text: "the memory that holds one chunk"},
			{Term: "ring", Text: "all slots of one end. The RDMA device reads and writes them itself, so they are pinned in memory"},
			{Term: "rail", Text: "an RDMA device that a copy uses"},
			{Term: "rung", Text: "a way between the network and slots in GPU memory: dma-buf and peermem, by which the RDMA device reaches them itself, and staged, through the host's memory"},
			{Term: "root", Text: "one digest over all that was copied: names, types, sizes and contents. The meta root is over modes and times"},
		}},
		list,
	}
}

// files returns the files that a command reads or writes, apart from its operands.
func files(command string) []cmdline.Item {
	leftovers := cmdline.Item{Term: ".gdrcp-*", Text: "in a target's directory: what is being written, until it has its name. What a killed copy leaves of these is removed by the next copy that writes there"}
	switch command {
	case "":
		return []cmdline.Item{
			{Term: "ID.key", Text: "a key, as gdrcp key new makes it, for --key-file. Nobody but its owner may read it"},
			leftovers,
			{Term: ".gdrcp-manifest-*", Text: "the same for a manifest"},
			{Term: "~/.cache/gdrcp", Text: "on the host of host:path: what --bootstrap copies there. $XDG_CACHE_HOME takes the place of ~/.cache"},
			{Term: "../lib/gdrcp/gdrcp-static-linux-*", Text: "beside the program's directory: what --bootstrap copies to hosts where the program itself does not start"},
		}
	case "serve":
		return []cmdline.Item{
			{Term: "/etc/gdrcp/access", Text: "the access file of the systemd unit. Nobody but its owner may read it"},
			leftovers,
		}
	}
	return nil
}
