package args

import "strings"

// missingOption is an option of rsync that gdrcp recognizes and lacks. A user who gives
// it gets one line about what to use instead, and no copy that does something else.
type missingOption struct {
	names   string // rsync's names, without dashes, separated by spaces
	instead string // follows "gdrcp has no OPTION: "
}

// rsyncOnly lists the options of rsync(1) that gdrcp lacks, as --no-NAME where people
// write that form.
func rsyncOnly() []missingOption {
	return []missingOption{
		{"i itemize-changes out-format", "-v tells every entry, -n -v what would be copied; a key of ssh goes by -e 'ssh -i KEY'"},
		{"list-only", "-n -v lists every entry and copies nothing"},
		{"mkpath", "the directory that DST is in has to exist: make it with mkdir -p before"},
		{"remove-source-files", "it changes nothing at the source: remove the files when the copy has ended with exit code 0"},
		{"chmod", "-p keeps the modes of the source: change them with chmod -R at the destination afterwards"},
		{"chown usermap groupmap", "-o and -g keep owner and group of the source: change them with chown -R at the destination afterwards"},
		{"U atimes N crtimes open-noatime", "of times it keeps those of change (-t)"},
		{"J omit-link-times", "-t keeps the times of all entries; a host to jump by goes by -e 'ssh -J HOST'"},
		{"O omit-dir-times", "-t keeps the times of all entries"},
		{"D devices specials copy-devices write-devices", "it leaves out devices, fifos and sockets, and tells each"},
		{"E executability", "-p keeps all permission bits"},
		{"R relative no-implied-dirs", "cd to where the paths begin and name them in a list: gdrcp --files-from LIST . DST"},
		{"m prune-empty-dirs", "list the files alone: find . -type f -print0 | gdrcp -0 --files-from - . DST"},
		{"d dirs old-dirs old-d", "name the directories in a list: gdrcp --files-from LIST SRC DST, without -r"},
		{"k copy-dirlinks copy-unsafe-links safe-links munge-links", "-l keeps links as they are, -L copies what they lead to"},
		{"K keep-dirlinks", "name as DST where the link leads"},
		{"b backup backup-dir suffix", "it keeps no backup of what it replaces: first copy the destination with cp -al"},
		{"link-dest", "--atomic-dir makes a new tree that shares unchanged files with the one that it replaces"},
		{"compare-dest copy-dest y fuzzy", "it copies whole files, and looks for them at DST alone"},
		{"append", "--append-verify compares what is there first; a file that was cut off goes on by itself"},
		{"delay-updates T temp-dir", "a file is written in the directory where it belongs, or in --partial-dir, and gets its name when it is verified"},
		{"no-whole-file no-W", "it always copies whole files"},
		{"C cvs-exclude", "say what is left out with --exclude or --exclude-from"},
		{"F", "say what is left out with --exclude or --exclude-from; a configuration of ssh goes by -e 'ssh -F FILE'"},
		{"ignore-errors", "--delete deletes nothing where the source could not be read whole"},
		{"force", "--delete deletes a directory, too, where the source has something else"},
		{"delete-missing-args ignore-missing-args", "a SRC that is missing is told, and the others are copied (exit code 3)"},
		{"compress-choice zc skip-compress compress-level zl compress-threads zt", "--compress zstd, s2 or auto says how chunks are compressed"},
		{"checksum-choice cc", "--hash says how pieces are digested"},
		{"rsync-path", "--remote-path says where gdrcp is on the other host"},
		{"M remote-option", "an option is for both ends"},
		{"password-file", "--key-file names the key of a server"},
		{"port", "a server at another port is rdma://host:port/path; a port of ssh goes by -e 'ssh -p PORT'"},
		{"contimeout", "--timeout bounds how long a copy may stand still"},
		{"stop-after stop-at time-limit", "timeout(1) ends a copy: timeout 30m gdrcp ..."},
		{"modify-window @", "times are the same where one is the other as a coarser file system keeps it; -I copies every file"},
		{"fsync", "it waits until all is on the disk anyway, unless --no-fsync says otherwise"},
		{"4 ipv4 6 ipv6", "name the host by an address of that family; for ssh it is -e 'ssh -4' or -e 'ssh -6'"},
		{"B block-size", "--chunk-size is the size of what is sent at once"},
		{"log-file-format", "--log-file has a line of one form for every entry"},
		{"super fake-super copy-as", "-o, -g and -X keep what the user who writes may set"},
		{"debug stderr", "-v tells more"},
		{"no-D no-devices no-specials drop-D address blocking-io checksum-seed confine-root early-input iconv inc-recursive i-r insecure-links max-alloc " +
			"no-inc-recursive no-i-r no-motd 8 8-bit-output old-args outbuf only-write-batch preallocate protocol read-batch sockopts trust-sender write-batch",
			"it has nothing like that: leave the option out"},
	}
}

// Elsewhere returns the error of an option, by its name without dashes, that rsync has
// and gdrcp lacks. It is nil if rsync has no option of that name.
func Elsewhere(name string) error {
	for _, e := range rsyncOnly() {
		for n := range strings.FieldsSeq(e.names) {
			if n == name {
				return UsageErrorf("gdrcp has no %s: %s", Dashed(name), e.instead)
			}
		}
	}
	return nil
}
