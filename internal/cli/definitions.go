package cli

import (
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

// describe returns the description of the command line from which help, manual pages,
// docs/cli.md and completion are made.
func describe(app *cli.App) *cmdline.Program {
	p := &cmdline.Program{
		Version: app.Version, Date: versionDate(), Environment: environment(), ExitCodes: exitCodes(),
		AboutOptions: "Short ones can be joined (-rp), long ones take --name value or --name=value. A SIZE is a number of bytes with an optional " +
			"K, M, G or T for powers of 1024, with or without iB: 65536, 64K, 1MiB.",
		All: []cmdline.Command{describeCommand(args.FindCommand(app.Commands, args.CopyName), app.Name)},
	}
	for _, c := range args.Visible(app.Commands) {
		p.All = append(p.All, describeCommand(c, app.Name+" "+c.Name))
	}
	return p
}

// describeCommand describes a command. title is the words that call it.
func describeCommand(c *cli.Command, title string) cmdline.Command {
	_, words, _ := strings.Cut(title, " ")
	d := cmdline.Command{
		Title: title, Summary: c.Usage, Operands: c.ArgsUsage, Description: c.Description,
		Examples: examples(words), Sections: sections(words),
	}
	for _, sub := range args.Visible(c.Subcommands) {
		d.Commands = append(d.Commands, describeCommand(sub, title+" "+sub.Name))
	}
	if len(d.Commands) > 0 {
		return d
	}
	more, common := details(), common(words)
	for _, topic := range topics() {
		t := cmdline.Topic{Title: topic}
		for _, f := range append(slices.Clone(c.Flags), helpFlags()...) {
			if o, ok := describeOption(f); ok && f.(cli.CategorizableFlag).GetCategory() == topic {
				o.More = more[strings.TrimSpace(words+" --"+f.Names()[0])]
				if o.Brief = common[f.Names()[0]]; common == nil {
					o.Brief = cmdline.Brief(o.Text)
				}
				t.Options = append(t.Options, o)
			}
		}
		if len(t.Options) > 0 {
			d.Topics = append(d.Topics, t)
		}
	}
	return d
}

// helpFlags are the options that every command has.
func helpFlags() []cli.Flag {
	return about(topicOutput,
		&cli.BoolFlag{Name: args.HelpName, Aliases: []string{"h"}, Usage: "print help on the common options"},
		&cli.BoolFlag{Name: args.HelpAllName, Usage: "print help on all options"},
	)
}

// describeOption describes an option, unless it is hidden. Words in back quotes in its
// usage name its value. At the beginning of the usage they are not part of the text.
func describeOption(f cli.Flag) (cmdline.Option, bool) {
	doc, ok := f.(cli.DocGenerationFlag)
	if hidden, canHide := f.(cli.VisibleFlag); !ok || canHide && !hidden.IsVisible() {
		return cmdline.Option{}, false
	}
	o := cmdline.Option{Text: doc.GetUsage()}
	for _, n := range f.Names() {
		o.Names = append(o.Names, args.Dashed(n))
	}
	if args.Negatable(f) {
		o.Off = "--no-" + f.Names()[0]
	}
	slices.SortStableFunc(o.Names, func(a, b string) int { return min(len(a), 3) - min(len(b), 3) })
	if before, rest, found := strings.Cut(o.Text, "`"); found {
		value, after, _ := strings.Cut(rest, "`")
		o.Value, o.Text = value, before+value+after
		if before == "" {
			o.Text = strings.TrimSpace(after)
		}
	}
	return o, true
}

// versionDate returns the commit date of the running version if the program was built
// from a checkout, so that pages do not depend on when they are generated.
func versionDate() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.time" {
			if t, err := time.Parse(time.RFC3339, s.Value); err == nil {
				return t.UTC().Format(time.DateOnly)
			}
		}
	}
	return ""
}

// exitCodes returns the exit codes for the documentation.
func exitCodes() []cmdline.Item {
	return []cmdline.Item{
		{Term: strconv.Itoa(exitOK), Text: "ok"},
		{Term: strconv.Itoa(exitError), Text: "error: gdrcp could not finish, or could not write its output"},
		{Term: strconv.Itoa(exitUsage), Text: "usage error"},
		{Term: strconv.Itoa(exitPartial), Text: "some entries were not copied, deleted or read (unreadable, not writable, changed, vanished), or attributes could not be kept"},
		{Term: strconv.Itoa(exitIntegrity), Text: "integrity: something did not match its digest or the manifest, a manifest is damaged, or manifests differ"},
		{Term: strconv.Itoa(exitUnsupported), Text: "not supported here: no usable RDMA device or GPU, or the file system cannot do what an option asks for"},
		{Term: strconv.Itoa(exitInterrupted), Text: "interrupted by SIGINT, SIGTERM or SIGHUP (SIGINT and SIGTERM end a server with 0; SIGHUP makes it read its keys again)"},
	}
}

// environment returns every variable that gdrcp reads, for the documentation.
func environment() []cmdline.Item {
	return []cmdline.Item{
		{Term: "GDRCP_ACCESS_FILE", Text: "the access file, unless --access-file names one"},
		{Term: "GDRCP_KEY_FILE", Text: "the file of the key that both ends share, unless --key-file names one"},
		{Term: "GDRCP_RSH", Text: "the remote shell command, unless --rsh names one"},
		{Term: "GDRCP_TOS", Text: "the type of service of packets, unless --tos gives it; host:path does not pass it on"},
		{Term: "GDRCP_LIBIBVERBS, GDRCP_LIBRDMACM", Text: "other files than libibverbs.so.1 and librdmacm.so.1"},
		{Term: "GDRCP_LIBCUDA, GDRCP_LIBNVML", Text: "other files than libcuda.so.1 and libnvidia-ml.so.1"},
		{Term: "GOGC, GOMEMLIMIT", Text: "as for every Go program; either turns off the bound that gdrcp sets for its heap"},
		{Term: "GOMAXPROCS", Text: "as for every Go program; without it gdrcp uses one processor for RDMA on a machine with at most two"},
		{Term: "NOTIFY_SOCKET", Text: "where serve tells the service manager that it is ready, reloading or stopping (sd_notify)"},
		{Term: "TERM", Text: "with the value dumb there is no line of progress"},
		{Term: "TMPDIR", Text: "where names of very large directories are sorted (/tmp)"},
	}
}

// examples returns the examples of a command, given by its words.
func examples(command string) []cmdline.Item {
	switch command {
	case "":
		return []cmdline.Item{
			{Text: "Copy a file to another host, where ssh starts gdrcp:", Term: "gdrcp model.safetensors node2:/data/"},
			{Text: "Push a tree to a server, with links, modes, times, owners and groups:", Term: "gdrcp -a --key-file ci.key checkpoint-4000 rdma://storage/"},
			{Text: "Pull a file from it, with the key that $GDRCP_KEY_FILE names:", Term: "gdrcp rdma://storage/checkpoint-4000/model.safetensors /data/"},
			{Text: "Insist on RDMA, with this end's slots in the memory of the nearest GPU:", Term: "gdrcp --require verbs --gpu auto model.safetensors rdma://storage/"},
			{Text: "Show what would be copied and deleted to make a mirror:", Term: "gdrcp -a --delete --dry-run project node2:/backup/"},
			{Text: "Put an archive on another host while it is made:", Term: "tar c project | gdrcp - node2:/backup/project.tar"},
			{Text: "Replace a tree on a server by a newer one in a single step:", Term: "gdrcp -a --atomic-dir checkpoint-4000 rdma://storage/latest"},
			{Text: "Copy only what a manifest of the source says:", Term: "gdrcp -a --manifest checkpoint.manifest checkpoint-4000 rdma://storage/"},
		}
	case "serve":
		return []cmdline.Item{
			{Text: "Serve a directory to this host, read-only:", Term: "gdrcp serve --root /data --read-only --listen localhost --key-file ci.key"},
			{Text: "Serve what an access file says to whom, 16 clients at a time, and let others wait a minute:", Term: "gdrcp serve --access-file /etc/gdrcp/access --max-sessions 16 --max-wait 60"},
		}
	case "manifest create":
		return []cmdline.Item{
			{Text: "Write a manifest, compressed:", Term: "gdrcp manifest create -o model.manifest.zst model"},
			{Text: "Write one of a tree on another host:", Term: "gdrcp manifest create -o data.manifest node2:/data/model"},
		}
	case "manifest verify":
		return []cmdline.Item{
			{Text: "Check a copy:", Term: "gdrcp manifest verify model.manifest.zst /data/model"},
			{Text: "Check a copy on another host:", Term: "gdrcp manifest verify model.manifest.zst node2:/data/model"},
		}
	case "manifest show":
		return []cmdline.Item{
			{Text: "List what a manifest holds:", Term: "gdrcp manifest show model.manifest.zst"},
			{Text: "Count the entries:", Term: "zstd -dc model.manifest.zst | gdrcp manifest show - | wc -l"},
		}
	case "manifest diff":
		return []cmdline.Item{
			{Text: "Say what changed between two manifests:", Term: "gdrcp manifest diff monday.manifest tuesday.manifest"},
			{Text: "Only ask whether anything did:", Term: "gdrcp manifest diff -q monday.manifest tuesday.manifest"},
		}
	case "clean":
		return []cmdline.Item{
			{Text: "Give up what copies to a directory would go on with:", Term: "gdrcp clean /data"},
			{Text: "Tell each file that goes:", Term: "gdrcp clean -v /data /backup"},
		}
	case "devices":
		return []cmdline.Item{
			{Text: "See which RDMA devices and GPUs can be used, and how:", Term: "gdrcp devices"},
			{Text: "Pick the addresses of RDMA devices out of the list:", Term: "gdrcp devices --json | jq -r '.ports[]?.addresses[]?'"},
		}
	case "key new":
		return []cmdline.Item{
			{Text: "Make a key that opens one directory, for reading only:", Term: "gdrcp key new ci --access-file /etc/gdrcp/access --root /data --read-only"},
			{Text: "Make one for four copies at a time:", Term: "gdrcp key new nightly --root /backup --max-sessions 4"},
		}
	case "key list":
		return []cmdline.Item{
			{Text: "List the keys of a server and what they open:", Term: "gdrcp key list --access-file /etc/gdrcp/access"},
			{Text: "List those of the file that $GDRCP_ACCESS_FILE names:", Term: "gdrcp key list"},
		}
	case "completion":
		return []cmdline.Item{
			{Text: "In ~/.bashrc:", Term: "source <(gdrcp completion bash)"},
			{Text: "In fish, once:", Term: "gdrcp completion fish > ~/.config/fish/completions/gdrcp.fish"},
		}
	case "bench":
		return []cmdline.Item{
			{Text: "Measure with every digest:", Term: "gdrcp bench --hash none,xxh3,blake3,crc32c,sha256 rdma://storage"},
			{Text: "See which of disk and wire is the slower:", Term: "gdrcp bench --disk /data --bytes 20G rdma://storage"},
		}
	}
	return nil
}
