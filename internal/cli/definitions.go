package cli

import (
	"runtime/debug"
	"slices"
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
		Name: app.Name, Version: app.Version, Date: versionDate(),
		Summary:     "copies files and directory trees between hosts over RDMA or TCP and verifies every piece",
		Environment: environment(), ExitCodes: exitCodes(),
		AboutOptions: "Short ones can be joined (-rp), long ones take --name value or --name=value. A SIZE is a number of bytes with an optional " +
			"K, M, G or T for powers of 1024, with or without iB: 65536, 64K, 1MiB.",
		Commands: []cmdline.Command{describeCommand(args.FindCommand(app.Commands, args.CopyName), nil)},
	}
	for _, c := range args.Visible(app.Commands) {
		p.Commands = append(p.Commands, describeCommand(c, nil))
	}
	return p
}

// describeCommand describes a command. above are the words of the commands above it.
func describeCommand(c *cli.Command, above []string) cmdline.Command {
	d := cmdline.Command{Summary: c.Usage, Operands: c.ArgsUsage, Description: c.Description}
	if c.Name != args.CopyName {
		d.Words = append(slices.Clone(above), c.Name)
	}
	title := strings.Join(d.Words, " ")
	d.Examples, d.Sections, d.Files = examples(title), sections(title), files(title)
	for _, sub := range args.Visible(c.Subcommands) {
		d.Commands = append(d.Commands, describeCommand(sub, d.Words))
	}
	if len(d.Commands) > 0 {
		return d
	}
	flags := append(slices.Clone(c.Flags), helpFlag())
	more := details()
	for _, topic := range topics() {
		t := cmdline.Topic{Title: topic}
		for _, f := range flags {
			if o, ok := describeOption(f); ok && topicOf(f) == topic {
				o.More = more[strings.TrimSpace(title+" --"+f.Names()[0])]
				t.Options = append(t.Options, o)
			}
		}
		if len(t.Options) > 0 {
			d.Topics = append(d.Topics, t)
		}
	}
	return d
}

// helpFlag is the option that every command has.
func helpFlag() cli.Flag {
	return &cli.BoolFlag{Name: args.HelpName, Aliases: []string{"h"}, Usage: "print help", Category: topicOutput}
}

func topicOf(f cli.Flag) string {
	if c, ok := f.(cli.CategorizableFlag); ok {
		return c.GetCategory()
	}
	return ""
}

// describeOption describes an option, unless it is hidden. The words of its usage in
// back quotes name its value. At the beginning of the usage they are not part of the
// text.
func describeOption(f cli.Flag) (cmdline.Option, bool) {
	doc, ok := f.(cli.DocGenerationFlag)
	if hidden, canHide := f.(cli.VisibleFlag); !ok || canHide && !hidden.IsVisible() {
		return cmdline.Option{}, false
	}
	o := cmdline.Option{Text: doc.GetUsage()}
	for _, n := range f.Names() {
		o.Names = append(o.Names, args.Dashed(n))
		if args.Negatable(f) {
			o.Off = append(o.Off, "--no-"+n)
		}
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

// versionDate returns when the running version was committed, if the program was built
// from a checkout. So a page that is made twice is the same both times.
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

// exitCodes are the exit codes for people.
func exitCodes() []cmdline.ExitCode {
	return []cmdline.ExitCode{
		{Code: exitOK, Text: "ok"},
		{Code: exitError, Text: "error: gdrcp could not finish, or could not write what it had to tell"},
		{Code: exitUsage, Text: "usage: the command line makes no sense"},
		{Code: exitPartial, Text: "some files were not copied, not deleted, or not read: unreadable, not writable, changed while they were read, or vanished"},
		{Code: exitIntegrity, Text: "integrity: something did not match its digest or the manifest, a manifest is damaged, or manifests differ"},
		{Code: exitUnsupported, Text: "not supported here: no RDMA device or GPU, or none that can do it"},
		{Code: exitInterrupted, Text: "interrupted by SIGINT, SIGTERM or SIGHUP (SIGINT and SIGTERM end a server with 0; SIGHUP has it read its keys anew)"},
	}
}

// environment lists every variable that gdrcp reads, for people.
func environment() []cmdline.Variable {
	return []cmdline.Variable{
		{Names: []string{"GDRCP_ACCESS_FILE"}, Text: "the access file, unless --access-file names one"},
		{Names: []string{"GDRCP_KEY_FILE"}, Text: "the file of the key that both ends share, unless --key-file names one"},
		{Names: []string{"GDRCP_RSH"}, Text: "the remote shell command, unless --rsh names one"},
		{Names: []string{"GDRCP_TOS"}, Text: "the type of service of packets, unless --tos gives it; host:path does not pass it on"},
		{Names: []string{"GDRCP_LIBIBVERBS", "GDRCP_LIBRDMACM"}, Text: "other files than libibverbs.so.1 and librdmacm.so.1"},
		{Names: []string{"GDRCP_LIBCUDA", "GDRCP_LIBNVML"}, Text: "other files than libcuda.so.1 and libnvidia-ml.so.1"},
		{Names: []string{"GOGC", "GOMEMLIMIT"}, Text: "as for every Go program; either turns off the bound that gdrcp sets for its heap"},
		{Names: []string{"GOMAXPROCS"}, Text: "as for every Go program; without it gdrcp uses one processor for RDMA on a machine with at most two"},
		{Names: []string{"NOTIFY_SOCKET"}, Text: "where serve tells the service manager that it is ready, reloading or stopping (sd_notify)"},
		{Names: []string{"TERM"}, Text: "with the value dumb there is no line of progress"},
		{Names: []string{"TMPDIR"}, Text: "where names of very large directories are sorted (/tmp)"},
	}
}

// examples returns the examples of a command, by its words.
func examples(command string) []cmdline.Example {
	switch command {
	case "":
		return []cmdline.Example{
			{Text: "Copy a file to another host, where ssh starts gdrcp:", Line: "gdrcp model.safetensors node2:/data/"},
			{Text: "Push a tree to a server, with links, modes, times, owners and groups:", Line: "gdrcp -a --key-file ci.key checkpoint-4000 rdma://storage/"},
			{Text: "Pull a file from it, with the key that $GDRCP_KEY_FILE names:", Line: "gdrcp rdma://storage/checkpoint-4000/model.safetensors /data/"},
			{Text: "Insist on RDMA, with this end's slots in the memory of the nearest GPU:", Line: "gdrcp --require verbs --gpu auto model.safetensors rdma://storage/"},
			{Text: "Show what would be copied and deleted to make a mirror:", Line: "gdrcp -a --delete --dry-run project node2:/backup/"},
			{Text: "Put an archive on another host while it is made:", Line: "tar c project | gdrcp - node2:/backup/project.tar"},
			{Text: "Replace a tree on a server by a newer one in a single step:", Line: "gdrcp -a --atomic-dir checkpoint-4000 rdma://storage/latest"},
			{Text: "Copy only what a manifest of the source says:", Line: "gdrcp -a --manifest checkpoint.manifest checkpoint-4000 rdma://storage/"},
		}
	case "serve":
		return []cmdline.Example{
			{Text: "Serve a directory to this host, read-only:", Line: "gdrcp serve --root /data/models --read-only --listen localhost --key-file models.key"},
			{Text: "Serve what an access file says to whom, 16 clients at a time, and let others wait a minute:", Line: "gdrcp serve --access-file /etc/gdrcp/access --max-sessions 16 --max-wait 60"},
		}
	case "manifest create":
		return []cmdline.Example{{Text: "Write a manifest, compressed:", Line: "gdrcp manifest create -o model.manifest.zst model"}}
	case "manifest verify":
		return []cmdline.Example{
			{Text: "Check a copy:", Line: "gdrcp manifest verify model.manifest.zst /data/model"},
			{Text: "Check a copy on another host:", Line: "gdrcp manifest verify model.manifest.zst node2:/data/model"},
		}
	case "clean":
		return []cmdline.Example{{Text: "Give up what copies to a directory would go on with:", Line: "gdrcp clean /data"}}
	case "devices":
		return []cmdline.Example{{Text: "Pick the addresses of RDMA devices out of the list:", Line: "gdrcp devices --json | jq -r '.ports[]?.addresses[]?'"}}
	case "key new":
		return []cmdline.Example{{Text: "Make a key that opens one directory, for reading only:", Line: "gdrcp key new ci --access-file /etc/gdrcp/access --root /data/models --read-only"}}
	case "completion":
		return []cmdline.Example{{Text: "In ~/.bashrc:", Line: "source <(gdrcp completion bash)"}}
	case "bench":
		return []cmdline.Example{
			{Text: "Measure with every digest:", Line: "gdrcp bench --hash none,xxh3,blake3,crc32c,sha256 rdma://storage"},
			{Text: "See which of disk and wire is the slower:", Line: "gdrcp bench --disk /data --bytes 20G rdma://storage"},
		}
	}
	return nil
}
