package cli

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/cmdline"

	"github.com/urfave/cli/v2"
)

// commandsOf calls check for each visible command and subcommand.
func commandsOf(list []cmdline.Command, check func(c *cmdline.Command)) {
	for i := range list {
		check(&list[i])
		commandsOf(list[i].Commands, check)
	}
}

// An option accepts the values that its description offers.
func TestValuesThatAreOffered(t *testing.T) {
	p, _, _ := newProgram()
	var check func(commands []*cli.Command)
	check = func(commands []*cli.Command) {
		for _, c := range commands {
			for _, f := range c.Flags {
				v, ok := f.(*valueFlag)
				o, shown := describeOption(f)
				if !ok || !shown {
					continue
				}
				for word := range strings.SplitSeq(o.Value, "|") {
					if strings.ToLower(word) != word || word == "-" {
						continue
					}
					if err := v.Value.Set(word); err != nil {
						t.Errorf("%s of %q offers %s: %v", o.Names, c.Name, word, err)
					}
				}
			}
			check(c.Subcommands)
		}
	}
	check(p.app().Commands)
}

func TestEveryCommandIsDescribed(t *testing.T) {
	p, _, _ := newProgram()
	commandsOf(describe(p.app()).All, func(c *cmdline.Command) {
		if c.Summary == "" || strings.HasSuffix(c.Summary, ".") || c.Description == "" {
			t.Errorf("%s has the summary %q (Usage of its cli.Command) and the description %q", c.Title, c.Summary, c.Description)
		}
		for _, topic := range c.Topics {
			for _, o := range topic.Options {
				if o.Text == "" {
					t.Errorf("%s says nothing of %s", c.Title, o.Names)
				}
			}
		}
	})
}

// The program can parse the command lines of its examples.
func TestExamples(t *testing.T) {
	n := 0
	p, _, _ := newProgram()
	app := p.app()
	commandsOf(describe(app).All, func(c *cmdline.Command) {
		for _, e := range c.Examples {
			n++
			words := strings.Fields(e.Term)
			if words[0] != "gdrcp" || strings.ContainsAny(e.Term, "'\"\\|<>") {
				continue // uses more shell syntax than can be parsed here
			}
			if line, err := args.Arrange(app, words[1:]); err != nil || strings.TrimSpace("gdrcp "+line.Title) != c.Title {
				t.Errorf("example %q of %s: %v", e.Term, c.Title, err)
			}
		}
	})
	if n == 0 {
		t.Error("there are no examples")
	}
}

// Help begins with two examples, is at most 80 columns wide and, without --help-all, at
// most one screen long.
func TestHelpFitsAScreen(t *testing.T) {
	p, _, _ := newProgram()
	commandsOf(describe(p.app()).All, func(c *cmdline.Command) {
		words := strings.Fields(c.Title)[1:]
		for _, option := range []string{"--help", "--help-all"} {
			help := gdrcp(t, append(words, option)...).want(t, exitOK).out
			if option == "--help" && len(c.Commands) == 0 && strings.Count(help, "\n") > 40 {
				t.Errorf("%s --help has %d lines", c.Title, strings.Count(help, "\n"))
			}
			if n := len(regexp.MustCompile(`(?m)^  \S.*\n      \S`).FindAllString(help[:strings.Index(help, "\nUsage")], -1)); n != 2 || !strings.HasPrefix(help, "Examples:\n") {
				t.Errorf("%s %s begins with %d examples", c.Title, option, n)
			}
			for line := range strings.Lines(help) {
				if len([]rune(line)) > 81 {
					t.Errorf("%s %s has a line of %d columns: %s", c.Title, option, len(line)-1, line)
				}
			}
		}
	})
}

// The short help lists existing options only, in one line each.
func TestCommonOptionsAreOptions(t *testing.T) {
	p, _, _ := newProgram()
	commandsOf(describe(p.app()).All, func(c *cmdline.Command) {
		_, words, _ := strings.Cut(c.Title, " ")
		left := common(words)
		for _, o := range c.Options() {
			for _, n := range o.Names {
				delete(left, strings.TrimLeft(n, "-"))
			}
			if common(words) != nil && len([]rune(o.Brief)) > 49 {
				t.Errorf("help of %s has no room for %q", c.Title, o.Brief)
			}
		}
		for name := range left {
			t.Errorf("common() in manuals.go is about --%s of %s, which is no option", name, c.Title)
		}
	})
}

// The pages have every option, and formatters do not warn about them.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "man")
	gdrcp(t, "man-pages", dir).want(t, exitOK)
	gdrcp(t, "man-pages").want(t, exitUsage)
	gdrcp(t, "man-pages", "/dev/null/man").want(t, exitError)
	p, _, _ := newProgram()
	all := describe(p.app())
	for i := range all.All {
		top := &all.All[i]
		name := strings.ReplaceAll(top.Title, " ", "-") + ".1"
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		page := string(data)
		commandsOf([]cmdline.Command{*top}, func(c *cmdline.Command) {
			for _, topic := range c.Topics {
				for _, o := range topic.Options {
					for _, option := range o.Names {
						if !strings.Contains(page, option) {
							t.Errorf("%s lacks %s", name, option)
						}
					}
				}
			}
		})
		for _, hidden := range []string{"--imm", "man-pages", "\x00"} {
			if strings.Contains(page, hidden) {
				t.Errorf("%s has %q, which is hidden", name, hidden)
			}
		}
		lintPage(t, filepath.Join(dir, name))
	}
}

// lintPage checks a page with the formatters that are installed.
func lintPage(t *testing.T, path string) {
	t.Helper()
	asked := false
	for _, args := range [][]string{{"groff", "-ww", "-man", "-Kutf8", "-Tutf8", path}, {"man", "--warnings", "-l", path}, {"mandoc", "-Tlint", "-Wwarning", path}} {
		tool, err := exec.LookPath(args[0])
		if err != nil {
			continue
		}
		asked = true
		cmd := exec.CommandContext(t.Context(), tool, args[1:]...)
		var told strings.Builder
		cmd.Stderr = &told
		out, err := cmd.Output()
		text := told.String()
		if args[0] == "mandoc" { // its output is standard output; a test's program has no date
			text, err = "", nil
			for line := range strings.Lines(string(out)) {
				if !strings.Contains(line, "missing date") {
					text += line
				}
			}
		}
		if err != nil || text != "" {
			t.Errorf("%s: %v\n%s", strings.Join(args, " "), err, text)
		}
	}
	if !asked {
		t.Skip("none of groff, man and mandoc is installed (apt-get install man-db groff-base)")
	}
}

// docs/cli.md is what the definitions generate.
func TestReferenceIsCurrent(t *testing.T) {
	want := gdrcp(t, "cli-reference").want(t, exitOK).out
	gdrcp(t, "cli-reference", "docs").want(t, exitUsage)
	got, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Error("docs/cli.md is not what the definitions of the commands give: run make docs")
	}
	p, _, _ := newProgram()
	commandsOf(describe(p.app()).All, func(c *cmdline.Command) {
		for _, topic := range c.Topics {
			for _, o := range topic.Options {
				if row := "| `" + strings.Join(o.Names, ", "); !strings.Contains(want, row) {
					t.Errorf("the reference lacks %s of %s", o.Names, c.Title)
				}
			}
		}
	})
	for _, hidden := range []string{"--imm", "man-pages", "far-end\n```", "\x00"} {
		if strings.Contains(want, hidden) {
			t.Errorf("the reference has %q, which is hidden", hidden)
		}
	}
}

// Additional texts of manuals are about existing options, in whole sentences.
func TestDetailsAreOfOptions(t *testing.T) {
	left := details()
	p, _, _ := newProgram()
	commandsOf(describe(p.app()).All, func(c *cmdline.Command) {
		for _, topic := range c.Topics {
			for _, o := range topic.Options {
				if strings.Contains(o.More, "`") || o.More != "" && !strings.HasSuffix(o.More, ".") {
					t.Errorf("what manuals say of %s is no plain sentence: %q", o.Names, o.More)
				}
				for _, n := range o.Names {
					delete(left, strings.TrimSpace(strings.TrimPrefix(c.Title, "gdrcp")+" "+n))
				}
			}
		}
	})
	for key := range left {
		t.Errorf("details() in manuals.go are about %s, which is no option", key)
	}
}

// The README lists the program's exit codes.
func TestReadmeHasExitCodes(t *testing.T) {
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| code | |\n|---|---|\n"
	for _, e := range exitCodes() {
		table += fmt.Sprintf("| %s | %s |\n", e.Term, e.Text)
	}
	if !strings.Contains(string(readme), table) {
		t.Errorf("the README has other exit codes than exitCodes() in definitions.go:\n%s", table)
	}
}

// Manuals and the reference list every variable that the program reads.
func TestEnvironmentIsTold(t *testing.T) {
	var told []string
	for _, v := range environment() {
		told = append(told, strings.Split(v.Term, ", ")...)
	}
	variable := regexp.MustCompile(`"(GDRCP_[A-Z_]+)"`)
	sources, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"chunker", "gpu", "manifest", "rdma/tcp", "rdma/verbs", "internal/remote", "internal/trust", "xfer"} {
		more, err := filepath.Glob("../../" + dir + "/*.go")
		if err != nil {
			t.Fatal(err)
		}
		sources = append(sources, more...)
	}
	for _, path := range sources {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range variable.FindAllStringSubmatch(string(source), -1) {
			if !slices.Contains(told, m[1]) {
				t.Errorf("%s reads %s, of which environment() in definitions.go says nothing", path, m[1])
			}
		}
	}
}
