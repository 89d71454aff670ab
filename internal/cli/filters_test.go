package cli

import (
	"bytes"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFilterOptions copies with rules from all options: their order is that of the
// command line, across options.
func TestFilterOptions(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a.o": "", "t/b.o": "", "t/c.c": "", "t/d/b.o": "", "t/d/e": "", "t/x\ny": ""})
	for name, text := range map[string]string{"rules": "+ b.o\n# no rule\n- *.o\n", "names": "e\r\n+ d/\n", "nul": "x\ny\x00e\x00", "long": "hide *.c\nmerge,- " + dir + "/names\n"} {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	all := []string{"a.o", "b.o", "c.c", "d/b.o", "d/e", "x\ny"}
	for _, c := range []struct {
		options []string
		stdin   string
		left    string // what is not copied
	}{
		{[]string{"--exclude", "*.o", "--include", "b.o"}, "", "a.o b.o d/b.o"},
		{[]string{"--include", "b.o", "--exclude", "*.o"}, "", "a.o"},
		{[]string{"-f", "+ b.o", "--exclude=*.o"}, "", "a.o"},
		{[]string{"--exclude=*.o", "-f!", "--exclude", "e"}, "", "d/e"},
		{[]string{"--exclude-from", dir + "/rules"}, "", "a.o"},
		{[]string{"--include=/t/d/e", "--exclude-from=" + dir + "/names", "-f", "- /t/d/b.o"}, "", "d/b.o"},
		{[]string{"--exclude-from", dir + "/nul", "-0"}, "", "d/e x\ny"},
		{[]string{"--filter=. " + dir + "/long"}, "", "c.c d/e"},
		{[]string{"--exclude-from", "-"}, "c.*\n- a.*\n", "a.o c.c"},
		{[]string{"--include-from", "-", "-f- *.o"}, "/t/*.o\n", "d/b.o"},
	} {
		if err := os.RemoveAll(s.root + "/copy"); err != nil {
			t.Fatal(err)
		}
		p, stdout, stderr := newProgram()
		p.stdin = strings.NewReader(c.stdin)
		args := append([]string{"gdrcp", "-r", "--transport", "tcp", dir + "/t", s.url("copy")}, c.options...)
		if code := p.run(t.Context(), args); code != exitOK {
			t.Fatalf("%q: exit code %d, %s%s", c.options, code, stdout, stderr)
		}
		var left []string
		got := listFiles(t, s.root)
		for _, name := range all {
			if _, copied := got["copy/"+name]; !copied {
				left = append(left, name)
			}
		}
		if strings.Join(left, " ") != c.left {
			t.Errorf("%q: %q is not copied, want %q", c.options, left, c.left)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	for _, c := range []struct {
		args, line string
		code       int
	}{
		{"--filter=x", `--filter: bad filter rule: "x" does not begin with the name of a rule`, exitUsage},
		{"--filter=dir-merge_.rules", `--filter: bad filter rule: "dir-merge_.rules": rules of each directory's own (dir-merge) are not supported`, exitUsage},
		{"--filter=-C", `--filter: bad filter rule: "-C": the modifier C is not supported`, exitUsage},
		{"--exclude-from=/no/such", `open "/no/such": no such file or directory`, exitError},
		{"--files-from=/no/such", `open "/no/such": no such file or directory`, exitError},
		{"--files-from=- --exclude-from=-", "--exclude-from and --files-from cannot both read standard input", exitUsage},
		{"b c --files-from=-", "a list of files takes one SRC, the directory that holds them", exitUsage},
		{"--exclude-from=- --include-from=-", "--exclude-from and --include-from cannot both read standard input", exitUsage},
	} {
		p, _, stderr := newProgram()
		p.stdin = bytes.NewReader(nil)
		args := slices.Concat([]string{"gdrcp", "a"}, strings.Fields(c.args), []string{"rdma://h/"})
		if code := p.run(t.Context(), args); code != c.code || stderr.String() != "gdrcp: "+c.line+"\n" {
			t.Errorf("%s: exit code %d and\n%swant %d and\ngdrcp: %s", c.args, code, stderr, c.code, c.line)
		}
	}
}

func TestFilesFrom(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "", "t/d/b": "", "t/d/c": "", "t/e/f": "", "t/x\ny": "", "t/#z": ""})
	for _, c := range []struct {
		options string
		list    string
		want    string // what is copied
		code    int
	}{
		{"", "a\nd/b\n\n#z\n", "a d/b", exitOK},
		{"", "/d/../a\r\n./#z\n", "#z a", exitOK},
		{"-0", "x\ny\x00d/c\x00", "d/c x\ny", exitOK},
		{"-r", "d\n", "d/b d/c", exitOK},
		{"-a", "d\n", "d/", exitOK},
		{"-ra", "d\n", "d/b d/c", exitOK},
		{"-ar", "d\n", "d/b d/c", exitOK},
		{"-ra --no-r", "d\n", "d/", exitOK},
		{"", "d/\n", "d/b d/c", exitOK},
		{"--exclude=c -r", "d\ne/f\n", "d/b e/f", exitOK},
		{"", "a\nnone\n", "a", exitPartial},
		{"", strings.Repeat("n", 300) + "\n", "", exitError},
	} {
		for _, push := range []bool{true, false} {
			to := t.TempDir()
			from, operands := dir, []string{dir + "/t", s.url("copy")}
			if !push {
				if err := os.CopyFS(s.root+"/t", os.DirFS(from+"/t")); err != nil {
					t.Fatal(err)
				}
				operands = []string{s.url("t"), to + "/copy"}
			}
			p, stdout, stderr := newProgram()
			p.stdin = strings.NewReader(c.list)
			args := slices.Concat([]string{"gdrcp", "--transport", "tcp", "--files-from=-"}, strings.Fields(c.options), operands)
			if code := p.run(t.Context(), args); code != c.code {
				t.Fatalf("%q of %q: exit code %d, %s%s", c.options, c.list, code, stdout, stderr)
			}
			if push {
				to = s.root
			}
			var got []string
			for name := range listFiles(t, to) {
				if rest, found := strings.CutPrefix(name, "copy/"); found {
					got = append(got, rest)
				}
			}
			slices.Sort(got)
			if strings.Join(got, " ") != c.want {
				t.Errorf("%q of %q: %q is copied, want %q", c.options, c.list, got, c.want)
			}
			for _, name := range []string{"/copy", "/t"} {
				if err := os.RemoveAll(s.root + name); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// TestFiltersOverSSH applies rules from a local file, and a list, between remote
// processes.
func TestFiltersOverSSH(t *testing.T) {
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"src/a.o": "", "src/b.c": "", "src/c/d.c": "", "src/c/e.o": "", "rules": "/src/c/d.c\n+ a.o\n*.o\n", "list": "c/e.o\na.o\n"})
	for _, c := range []struct{ options, from, to, want string }{
		{"-r --exclude-from=" + dir + "/rules", "h:" + dir + "/src", "i:" + dir + "/one", "a.o b.c c/"},
		{"-r --exclude-from=" + dir + "/rules", "h:" + dir + "/src", dir + "/two", "a.o b.c c/"},
		{"-r --exclude-from=" + dir + "/rules", dir + "/src", "h:" + dir + "/three", "a.o b.c c/"},
		{"--files-from=" + dir + "/list --exclude=a.o", "h:" + dir + "/src", dir + "/four", "c/e.o"},
		{"-r --filter=-/_" + dir + "/src/c", "h:" + dir + "/src/.", dir + "/five", "a.o b.c"},
	} {
		overShell(t, append(strings.Fields(c.options), c.from, c.to)...).want(t, exitOK)
		_, to, _ := strings.Cut(c.to, ":")
		if to == "" {
			to = c.to
		}
		got := slices.Sorted(maps.Keys(listFiles(t, to)))
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s: %q are copied, want %q", c.options, got, c.want)
		}
	}
	overShell(t, "--files-from="+dir+"/list", "h:"+dir+"/src", "i:"+dir+"/six").want(t, exitUsage)
}

// If a list names entries below something that is not a directory, the error has the
// name as the user gave it.
func TestListBelowAFile(t *testing.T) {
	s, dir := startServer(t), t.TempDir()
	makeFiles(t, dir, map[string]string{"fs/a.c": "A", "list": "x\n"})
	makeFiles(t, s.root, map[string]string{"a.c": "A"})
	for _, c := range []struct{ src, want string }{
		{dir + "/fs/a.c", `"` + dir + `/fs/a.c" is not a directory: a list of files needs one`},
		{dir + "/none", `"` + dir + `/none": no such file or directory`},
		{s.url("a.c"), `"/a.c" is not a directory: a list of files needs one`},
	} {
		if r := gdrcp(t, "--files-from", dir+"/list", c.src, dir+"/to").want(t, exitError); !strings.Contains(r.err, c.want) {
			t.Errorf("of %s: %q, want %s", c.src, r.err, c.want)
		}
	}
}
