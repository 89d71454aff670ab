package cli

import (
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"gdrcp/internal/cli/args"
)

func TestArrange(t *testing.T) {
	for _, c := range []struct {
		in, out string // words; out lacks the name and the command
		title   string
	}{
		{in: "a b -r", out: "--recursive -- a b"},
		{in: "-r a b", out: "--recursive -- a b"},
		{in: "a -rp b", out: "--recursive --perms -- a b"},
		{in: "a -- -r b", out: "-- a -r b"},
		{in: "-- a b --", out: "-- a b --"},
		{in: "- b", out: "-- - b"},
		{in: "a b --qps 4 --slots=8", out: "--qps=4 --slots=8 -- a b"},
		{in: "--write-manifest -r a b", out: "--write-manifest=-r -- a b"},
		{in: "--manifest -- a b", out: "--manifest=-- -- a b"},
		{in: "-vL a,b c", out: "--verbose --follow -- a,b c"},
		{in: "./serve b", out: "-- ./serve b"},
		{in: "-- serve b", out: "-- serve b"},
		{in: "-- help serve", out: "-- help serve"},
		{in: "-- version", out: "-- version"},
		{in: "a serve", out: "-- a serve"},
		{in: "serve --root x", out: "--root=x --", title: "serve"},
		{in: "-q --root x serve", out: "--quiet --root=x --", title: "serve"},
		{in: "manifest create -oX --hash blake3 p", out: "--output=X --hash=blake3 -- p", title: "manifest create"},
		{in: "manifest -o X create p", out: "--output=X -- p", title: "manifest create"},
		{in: "manifest verify m -- -p", out: "-- m -p", title: "manifest verify"},
		{in: "--json devices", out: "--json --", title: "devices"},
	} {
		p, _, _ := newProgram()
		line, err := args.Arrange(p.app(), strings.Fields(c.in))
		if err != nil {
			t.Errorf("%s: %v", c.in, err)
			continue
		}
		skip := 1 + max(1, len(strings.Fields(line.Title)))
		if got := strings.Join(line.Args[skip:], " "); got != c.out || line.Title != c.title {
			t.Errorf("%s: %q with %q, want %q with %q", c.in, line.Title, got, c.title, c.out)
		}
	}
}

// A usage error gives one line and exit code 2, and nothing on standard output.
func TestUsageErrors(t *testing.T) {
	for _, c := range []struct{ args, line string }{
		{"", "a copy needs SRC... and DST (see gdrcp --help)"},
		{"a", "a copy needs SRC... and DST (see gdrcp --help)"},
		{"-Q a b", "unknown option -Q (gdrcp --help lists them)"},
		{"-rQ a b", "unknown option -rQ (gdrcp --help lists them)"},
		{"a b --reverse", "unknown option --reverse (gdrcp --help lists them)"},
		{"a b --r", "unknown option --r (gdrcp --help lists them)"},
		{"--root x a b", "unknown option --root (gdrcp --help lists them)"},
		{"serve --recursive", "unknown option --recursive of gdrcp serve (gdrcp serve --help lists them)"},
		{"manifest show m --json", "unknown option --json of gdrcp manifest show (gdrcp manifest show --help lists them)"},
		{"a b --manifest=", "option --manifest has an empty value"},
		{"serve --root= --listen=", "option --root has an empty value"},
		{"a b --qps", "option --qps needs a value"},
		{"manifest create p -o", "option -o needs a value"},
		{"a b --qps 0", `--qps "0": not a number from 1 to 16`},
		{"a b --qps four", `--qps "four": not a number from 1 to 16`},
		{"a b --slots 257", `--slots "257": not a number from 1 to 256`},
		{"a b --chunk-size 65K", `--chunk-size "65K": not from 64KiB to 64MiB in steps of 64KiB`},
		{"a b --chunk-size 1MB", `--chunk-size "1MB": not a size (write it like 65536, 64K or 1MiB)`},
		{"a b --max-memory 1", `--max-memory "1": not from 64KiB to 1048576GiB`},
		{"bench --disk d --bytes 0", `--bytes "0": not from 1 to 1048576GiB`},
		{"a b --chunk-size 65M", `--chunk-size "65M": not from 64KiB to 64MiB in steps of 64KiB`},
		{"a b --hash md5", `--hash "md5": not one of xxh3, blake3, crc32c, sha256`},
		{"a b --write-manifest -", `--write-manifest "-": it is a file, and no stream; a file of that name is ./-`},
		{"a b --log-file=-", `--log-file "-": it is a file, and no stream; a file of that name is ./-`},
		{"a b --compress gzip", `--compress "gzip": not one of off, zstd, s2, auto`},
		{"a b --transport udp", `--transport "udp": not one of auto, verbs, tcp`},
		{"a b --require tcp", `--require "tcp": not one of verbs, gpudirect`},
		{"a b --recursive=maybe", `--recursive "maybe": not true or false`},
		{"a rdma://h/ -qv", "--quiet and --verbose exclude each other"},
		{"a rdma://h/ --slots 256 --chunk-size 64M", "256 slots of 64MiB make a ring of 16GiB; the limit is 1GiB"},
		{"manifest", "gdrcp manifest needs one of: create, verify, show, diff"},
		{"manifest make x", "gdrcp manifest has no command make: it needs one of: create, verify, show, diff"},
		{"manifest verify m", "gdrcp manifest verify needs 2 operands: MANIFEST PATH"},
		{"manifest create p --piece-size 1M", "unknown option --piece-size of gdrcp manifest create (gdrcp manifest create --help lists them)"},
		{"manifest create p --json", "--json needs -o FILE: the manifest itself goes to standard output"},
		{"manifest diff - -", "only one of the manifests can come from standard input"},
		{"serve", "gdrcp serve needs --access-file FILE, or --root DIR and --key-file FILE"},
		{"serve x", "gdrcp serve takes no operand, and got x: to serve that directory, write --root x"},
		{"serve x rdma://h/", "gdrcp serve takes no operand, and got x (a file of the name serve is ./serve)"},
		{"-a --delete --files-from=/dev/null a rdma://h/b", "--delete needs whole directories, and --files-from names only parts of one"},
		{"a rdma:/h/b", "rdma:/h/b: a server is rdma://host[:port]/path, with two slashes (a host of the name rdma needs a user: USER@rdma:/h/b)"},
		{"devices rxe0", "gdrcp devices takes no operand, and got rxe0 (a file of the name devices is ./devices)"},
		{"bench", "gdrcp bench needs one operand: rdma://host[:port] of a gdrcp serve; or --disk DIR"},
		{"bench h", "h: bench takes rdma://host[:port], without a path"},
		{"bench rdma://h/x", "rdma://h/x: bench takes rdma://host[:port], without a path"},
		{"bench rdma://h --hash none,md5", `--hash "none,md5": "md5" is not one of none, xxh3, blake3, crc32c, sha256`},
	} {
		r := gdrcp(t, strings.Fields(c.args)...)
		if r.code != exitUsage || r.err != "gdrcp: "+c.line+"\n" || r.out != "" && !strings.Contains(c.args, "--json") {
			t.Errorf("gdrcp %s: exit code %d, stdout %q, stderr\n%swant\ngdrcp: %s", c.args, r.code, r.out, r.err, c.line)
		}
	}
}

// Between the words of a command, arguments can be parsed only if an option takes a
// value in all commands that are still possible, or in none.
func TestOptionsTakeValuesEverywhereOrNowhere(t *testing.T) {
	p, _, _ := newProgram()
	for _, command := range p.app().Commands {
		all := args.EveryOption([]*cli.Command{command})
		for _, sub := range command.Subcommands {
			for n, o := range args.OptionsOf(sub.Flags) {
				if o != all[n] {
					t.Errorf("option %q of %s %s is %+v, elsewhere %+v", n, command.Name, sub.Name, o, all[n])
				}
			}
		}
	}
}

func TestHelp(t *testing.T) {
	for _, args := range []string{"--help", "-h", "-rh", "a -h", "-r --help a", "serve --help", "manifest --help", "manifest create -h", "bench x --help", "help", "help manifest create", "help --help", "--help-all", "a b --help-all", "serve --help-all"} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitOK)
		if !strings.Contains(r.out, "\nUsage: gdrcp ") || r.err != "" {
			t.Errorf("gdrcp %s wrote\n%s%s", args, r.out, r.err)
		}
		for line := range strings.Lines(r.out) {
			if strings.Contains(line, "`") || strings.TrimRight(line, " \n") != strings.TrimRight(line, "\n") {
				t.Errorf("gdrcp %s wrote %q", args, line)
			}
		}
	}
	// rsync's -h does not hide that a script forgot to set DST.
	for _, args := range []string{"-avh a", "a -h -r", "-h --stats a"} {
		if r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage); !strings.Contains(r.err, "needs SRC... and DST") || r.out != "" {
			t.Errorf("gdrcp %s wrote %q and %q", args, r.out, r.err)
		}
	}
	// All options are listed, except the hidden one.
	p, _, _ := newProgram()
	help := gdrcp(t, "--help-all").out
	if !strings.Contains(help, "interrupted by SIGINT") || !strings.Contains(help, "GDRCP_KEY_FILE") {
		t.Errorf("--help-all lacks exit codes and variables:\n%s", help)
	}
	for _, f := range args.FindCommand(p.app().Commands, args.CopyName).Flags {
		if told := strings.Contains(help, "--"+f.Names()[0]); told != (f.Names()[0] != "imm") {
			t.Errorf("--help on --%s: %v", f.Names()[0], told)
		}
	}
	if slices.Contains(strings.Fields(help), args.CopyName) {
		t.Error("--help tells the name of the command without a name")
	}
}

// An option with an empty value differs from an omitted option.
func TestEmptyValues(t *testing.T) {
	for _, args := range [][]string{
		{"a", "rdma://h/", "--manifest", ""}, {"a", "rdma://h/", "--rail", ""}, {"a", "rdma://h/", "--hash", ""}, {"serve", "--root", "/", "--listen", ""},
		{"manifest", "create", "a", "-o", ""},
	} {
		r := gdrcp(t, args...).want(t, exitUsage)
		if !strings.HasSuffix(r.err, " has an empty value\n") {
			t.Errorf("gdrcp %q wrote %q", args, r.err)
		}
	}
}

func TestVersion(t *testing.T) {
	r := gdrcp(t, "--version").want(t, exitOK)
	if !strings.HasPrefix(r.out, "gdrcp ") || strings.Count(r.out, "\n") != 1 || r.err != "" {
		t.Errorf("wrote %q and %q", r.out, r.err)
	}
}

// The error for a mistyped option suggests the option of the same command that is
// nearest, if there is exactly one.
func TestMistypedOptionsSuggestTheNearOne(t *testing.T) {
	for args, want := range map[string]string{
		"--recursve a b":                "unknown option --recursve: did you mean --recursive? (gdrcp --help lists them)",
		"--comrpess=zstd a b":           "unknown option --comrpess: did you mean --compress? (gdrcp --help lists them)",
		"--write-manifset m a b":        "unknown option --write-manifset: did you mean --write-manifest? (gdrcp --help lists them)",
		"--delete_excluded a b":         "unknown option --delete_excluded: did you mean --delete-excluded? (gdrcp --help lists them)",
		"serve --rot x":                 "unknown option --rot of gdrcp serve: did you mean --root? (gdrcp serve --help lists them)",
		"manifest create --hahs=xxh3 .": "unknown option --hahs of gdrcp manifest create: did you mean --hash? (gdrcp manifest create --help lists them)",
		"--no-prems a b":                "unknown option --no-prems: did you mean --no-perms? (gdrcp --help lists them)",
		// No option is near, or it belongs to another command, is hidden, or is one of
		// several.
		"--nonsense a b": "unknown option --nonsense (gdrcp --help lists them)",
		"--rooot x a b":  "unknown option --rooot (gdrcp --help lists them)",
		"--im a b":       "unknown option --im (gdrcp --help lists them)",
		"--imn=send a b": "unknown option --imn (gdrcp --help lists them)",
		"--" + strings.Repeat("x", 1000) + " a b": "unknown option --" + strings.Repeat("x", 1000) + " (gdrcp --help lists them)",
	} {
		r := gdrcp(t, strings.Fields(args)...).want(t, exitUsage)
		if r.err != "gdrcp: "+want+"\n" {
			t.Errorf("gdrcp %s wrote\n%swant\n%s", args, r.err, want)
		}
	}
}

// The words help and version do the same as the options, and no more: a file of that
// name can be copied.
func TestHelpAndVersionAsWords(t *testing.T) {
	for word, option := range map[string]string{"help": "--help", "version": "--version", "help serve": "serve --help", "help manifest diff": "manifest diff --help"} {
		want := gdrcp(t, strings.Fields(option)...).want(t, exitOK)
		if r := gdrcp(t, strings.Fields(word)...).want(t, exitOK); r.out == "" || r.out != want.out || r.err != "" {
			t.Errorf("gdrcp %s wrote\n%s%s, want\n%s", word, r.out, r.err, want.out)
		}
	}
	s := startServer(t)
	dir := t.TempDir()
	t.Chdir(dir)
	makeFiles(t, dir, map[string]string{"help": "H", "version": "V"})
	for _, name := range []string{"help", "version"} {
		gdrcp(t, name, s.url(name)).want(t, exitOK)
	}
}
