package program

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// TestTargets checks the rules of SRC and DST against scp's, between directories of one
// machine. Every case begins with s/file, s/other, s/dir/in, s/dir/sub/in, d/ with
// d/dir (which contains old), d/file, and runs in its own directory.
func TestTargets(t *testing.T) {
	onHost(t)
	scp, err := exec.LookPath("scp")
	if err != nil {
		t.Skip("needs scp: install openssh-client")
	}
	base := t.TempDir()
	s := serve(t, tcpLink(), base)
	for i, c := range []struct {
		sources string
		dst     string
		plain   bool // without -r
	}{
		{sources: "s/file", dst: "d/new"}, {sources: "s/file", dst: "d/new", plain: true}, {sources: "s/file", dst: "d/file"},
		{sources: "s/file", dst: "d"}, {sources: "s/file", dst: "d/"}, {sources: "s/file", dst: "d/dir"}, {sources: "s/file", dst: "d/dir/"},
		{sources: "s/file", dst: "d/none/"}, {sources: "s/file", dst: "d/none/x"}, {sources: "s/file", dst: "d/file/"},
		{sources: "s/file", dst: "d/file/x"}, {sources: "s/file", dst: "d/."}, {sources: "s/file", dst: "d/dir/.."},
		{sources: "s/file s/other", dst: "d/dir"}, {sources: "s/file s/other", dst: "d/dir/", plain: true},
		{sources: "s/file s/other", dst: "d/new"}, {sources: "s/file s/other", dst: "d/file"}, {sources: "s/file s/dir", dst: "d/dir"},
		{sources: "s/dir s/file", dst: "d"}, {sources: "s/dir", dst: "d/new"}, {sources: "s/dir", dst: "d/new/"}, {sources: "s/dir", dst: "d/dir"},
		{sources: "s/dir", dst: "d/dir/"}, {sources: "s/dir", dst: "d"}, {sources: "s/dir", dst: "d/"}, {sources: "s/dir", dst: "d/file"},
		{sources: "s/dir/", dst: "d/new"}, {sources: "s/dir/", dst: "d/dir"}, {sources: "s/dir/", dst: "d"}, {sources: "s/dir/.", dst: "d/new"},
		{sources: "s/dir/.", dst: "d/dir"}, {sources: "s/.", dst: "d"}, {sources: "s/.", dst: "d/new"}, {sources: "s/dir", dst: "d/new", plain: true},
		{sources: "s/dir/sub/..", dst: "d/new"}, {sources: "s/dir/sub/..", dst: "d/dir"}, {sources: "s/dir", dst: "d/none/x"},
		{sources: "s/link", dst: "d/new", plain: true}, {sources: "s/none", dst: "d/new"}, {sources: "s//dir///sub//", dst: "d//new//"},
	} {
		flags := []string{"-r"}
		if c.plain {
			flags = nil
		}
		t.Run(fmt.Sprintf("%s to %s %v", c.sources, c.dst, flags), func(t *testing.T) {
			folder := func(of string) string {
				dir := fmt.Sprintf("%s/%d-%s", base, i, of)
				makeTargets(t, dir)
				return dir
			}
			reference := folder("scp")
			cmd := exec.Command(scp, append(append(append([]string{}, flags...), strings.Fields(c.sources)...), c.dst)...)
			cmd.Dir = reference
			said, refErr := cmd.CombinedOutput()
			for _, push := range []bool{true, false} {
				dir := folder(direction{push}.String())
				args := append([]string{"--transport", "tcp"}, flags...)
				if !c.plain {
					args = append(args, "-l") // scp -r copies links too
				}
				there := strings.TrimPrefix(dir, base+"/") + "/"
				for _, source := range strings.Fields(c.sources) {
					if !push {
						source = s.url(there + source)
					}
					args = append(args, source)
				}
				dst := c.dst
				if push {
					dst = s.url(there + dst)
				}
				p := run(t, how{dir: dir}, append(args, dst)...)
				if failed := p.cmd.ProcessState.ExitCode() != 0; failed != (refErr != nil) {
					t.Errorf("%v: exit code %d, scp: %v %s: %s", direction{push}, p.cmd.ProcessState.ExitCode(), refErr, said, p)
				}
				if got, want := listing(t, dir), listing(t, reference); got != want {
					t.Errorf("%v made\n%swhere scp made\n%s%s", direction{push}, got, want, p)
				}
			}
		})
	}
}

func makeTargets(t *testing.T, dir string) {
	t.Helper()
	for _, name := range []string{"s/file", "s/other", "s/dir/in", "s/dir/sub/in", "d/file", "d/dir/old", "d/dir/in"} {
		write(t, dir+"/"+name, name)
	}
	must(t, os.Symlink("file", dir+"/s/link"))
}

// TestSameNames: of two sources with the same name the second is refused. scp would
// replace the first, which it has just copied.
func TestSameNames(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTargets(t, from)
		args := s.operands(d, s.via(), "s/dir/sub/in", ".")
		args = append(s.operands(d, s.via(), "s/dir/in", ".")[:1], args...)
		p := s.copy(t, args...)
		p.wantCode(3)
		p.wantLines(`same name.*s/dir/sub/in`)
		if text, _ := os.ReadFile(to + "/in"); string(text) != "s/dir/in" {
			t.Errorf("the first source's file holds %q", text)
		}
	})
}
