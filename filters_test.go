package main

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestFilterOptions copies by rules of all options: their order is that of the
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
		{"--filter=x", `--filter: bad filter rule: "x" begins with the name of none`, exitUsage},
		{"--filter=dir-merge_.rules", `--filter: bad filter rule: "dir-merge_.rules": rules of each directory's own (dir-merge) are not supported`, exitUsage},
		{"--filter=-C", `--filter: bad filter rule: "-C": the modifier C is not supported`, exitUsage},
		{"--exclude-from=/no/such", `open "/no/such": no such file or directory`, exitError},
		{"--exclude-from=- --include-from=-", "--exclude-from and --include-from cannot both read standard input", exitUsage},
	} {
		p, _, stderr := newProgram()
		p.stdin = bytes.NewReader(nil)
		args := slices.Concat([]string{"gdrcp", "a", "rdma://h/"}, strings.Fields(c.args))
		if code := p.run(t.Context(), args); code != c.code || stderr.String() != "gdrcp: "+c.line+"\n" {
			t.Errorf("%s: exit code %d and\n%swant %d and\ngdrcp: %s", c.args, code, stderr, c.code, c.line)
		}
	}
}
