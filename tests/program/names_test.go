package program

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// awkward returns names that often cause trouble.
func awkward() []string {
	return []string{
		"new\nline", "tab\there", `back\slash`, "invalid\xff\xfeutf8", "-r", "--hash", "--", " ", "a b", "\"quoted\"", "'", "%41", "a?b#c", "*", "\x01\x7f",
		"\x1b[31mred", "ü", "serve", "rdma:", "host:path", "~", "...", ".hidden", ".gdrcp-", ".gdrcp-0123456789abcdef0123456789abcdef0",
		strings.Repeat("x", 255), strings.Repeat("ü", 127), strings.Repeat("\xff", 255), "\u202egnp.exe", ",", "a,b",
	}
}

// TestNames copies names with any bytes, as files, directories and links.
func TestNames(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		for _, name := range awkward() {
			write(t, from+"/tree/files/"+name, name)
			write(t, from+"/tree/folders/"+name+"/in", name)
			must(t, os.MkdirAll(from+"/tree/links", 0o755))
			must(t, os.Symlink(name, from+"/tree/links/"+name))
		}
		p := s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-rl", "-v", "--write-manifest", t.TempDir()+"/m")...)
		p.wantCode(0)
		p.checkText(strings.ReplaceAll(p.stderr.String(), strings.Repeat("\\xff", 255), "")) // a name may be long, and is escaped
		sameTree(t, from+"/tree", to+"/copy", false)
		s.stop()
	})
}

// TestNamesAsOperands uses names of single files that look like something else.
func TestNamesAsOperands(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	for _, name := range []string{"-r", "--hash", "--json", "serve", "devices", "manifest", "bench", "a,b", "new\nline", "invalid\xff"} {
		t.Run(name, func(t *testing.T) {
			write(t, s.here+"/"+name, name)
			for _, args := range [][]string{{"--", name, s.url("copy/")}, {"./" + name, s.url("copy/")}, {s.here + "/" + name, s.url("copy/")}} {
				must(t, os.MkdirAll(s.there+"/copy", 0o755))
				run(t, how{dir: s.here}, append([]string{"--transport", "tcp"}, args...)...).wantCode(0)
				if text, err := os.ReadFile(s.there + "/copy/" + name); err != nil || string(text) != name {
					t.Errorf("%q: holds %q, %v", args, text, err)
				}
				must(t, os.RemoveAll(s.there+"/copy"))
			}
		})
	}
	t.Run("percent", func(t *testing.T) {
		write(t, s.there+"/100% #1?", "content")
		s.copy(t, s.url("100%25 #1?"), s.here+"/percent").wantCode(0)
		s.copy(t, s.url("100% #1?"), s.here+"/percent").wantFailure(2, `%25`)
	})
	s.stop()
}

// deepPath returns a path of about that many bytes, in components of 200.
func deepPath(bytes int) string {
	component := strings.Repeat("d", 199)
	return strings.TrimSuffix(strings.Repeat(component+"/", bytes/200), "/")
}

// TestDeepPaths copies paths near PATH_MAX, 4096, relative to the top. Deeper entries
// either arrive or are reported, and do not stop the copy.
func TestDeepPaths(t *testing.T) {
	onHost(t)
	bothWays(t, func(t *testing.T, d direction) {
		for _, bytes := range []int{3800, 6000} {
			s := newSides(t, tcpLink())
			from, to := s.ends(d)
			write(t, from+"/tree/zzz", "other")
			source, err := os.OpenRoot(from + "/tree")
			must(t, err)
			defer source.Close()
			deep := deepPath(bytes)
			must(t, source.MkdirAll(deep, 0o755))
			must(t, source.WriteFile(deep+"/file", []byte("deep"), 0o644))
			p := s.copy(t, append(s.operands(d, s.via(), "tree", "copy"), "-rl")...)
			copied, err := os.OpenRoot(to + "/copy")
			if err != nil {
				t.Fatalf("%v: %s", err, p)
			}
			defer copied.Close()
			text, err := copied.ReadFile(deep + "/file")
			code := p.cmd.ProcessState.ExitCode()
			arrived := code == 0 && string(text) == "deep"
			reported := code == 3 && bytes > 4096 && errors.Is(err, fs.ErrNotExist)
			if !arrived && !reported {
				t.Errorf("a path of %d bytes: %q, %v: %.600s", bytes, text, err, p)
			}
			if other, err := copied.ReadFile("zzz"); string(other) != "other" {
				t.Errorf("the other file: %q, %v", other, err)
			}
			s.stop()
		}
	})
}
