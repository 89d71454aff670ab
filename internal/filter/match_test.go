package filter

import (
	"strings"
	"testing"
	"time"
)

func matcherOf(t testing.TB, at Place, texts ...string) *Matcher {
	t.Helper()
	var p Parser
	for _, text := range texts {
		if err := p.Filter(text); err != nil {
			t.Fatal(err)
		}
	}
	rules, err := Compile(p.Rules())
	if err != nil {
		t.Fatal(err)
	}
	return rules.Matcher(at)
}

// TestMatch has the examples of rsync(1). A path with a trailing slash is a directory.
func TestMatch(t *testing.T) {
	for _, c := range []struct{ pattern, yes, no string }{
		{"*.o", "a.o|d/a.o|d.o/", "a.oo|o|a.o/x"},
		{"/foo", "foo|foo/", "a/foo|foo/bar"},
		{"foo/", "foo/|a/foo/", "foo|foo/a"},
		{"foo/bar", "foo/bar|a/foo/bar", "bar|xfoo/bar|foo/bar/c"},
		{"foo/*/bar", "foo/x/bar|a/foo/x/bar/", "foo/bar|foo/x/y/bar"},
		{"/foo/**/bar", "foo/a/bar|foo/a/b/bar", "foo/bar|a/foo/b/bar"},
		{"foo/**", "foo/a|foo/a/b|x/foo/a", "foo/|foo"},
		{"dir/***", "dir/|dir/a|dir/a/b|x/dir/", "dir|dirs/"},
		{"**/x", "x|a/x|a/b/x", "ax|x/a"},
		{"a**b", "ab|a/b|axxb|c/a/x/b", "a|ba|ca/x/b"},
		{"?", "a|b/c", "ab|b/cc"},
		{"[a-c]x", "ax|bx", "dx|x"},
		{"[!a-c]", "d|x/e", "a|ab"},
		{`foo\bar`, `foo\bar`, "foobar"},
		{`foo\bar*`, "foobar|foobarx", `foo\bar`},
		{`foo\\bar*`, `foo\barx`, "foobar"},
		{`\*`, "*", `a|\*`},
		{"[[:alpha:]]1", "a1|Z1", "11|ä1"},
		{"[a", "", "[a|a"},
		{"/", "", "a|a/"},
	} {
		m := matcherOf(t, Place{}, "- "+c.pattern)
		for want, paths := range map[bool]string{true: c.yes, false: c.no} {
			for _, path := range strings.Split(paths, "|") {
				name := strings.TrimSuffix(path, "/")
				if path != "" && m.Hides(name, name != path) != want {
					t.Errorf("%s: %s: %v", c.pattern, path, !want)
				}
			}
		}
	}
}

func TestPlace(t *testing.T) {
	m := matcherOf(t, Place{Name: "src", Dir: "/home/me/src"}, "- /src/a", "-/ /home/me/src/b", "-/ src/c", "- /src/d/")
	for path, want := range map[string]bool{"a": true, "x/a": false, "b": true, "c": true, "d": false, ".": false} {
		if m.Hides(path, false) != want {
			t.Errorf("%s: %v", path, !want)
		}
	}
	m.Move("/elsewhere")
	if m.Hides("b", false) || !m.Hides("a", false) || !m.Hides("d", true) {
		t.Error("rules for another directory hold")
	}
	if top := matcherOf(t, Place{Name: "src"}, "- src"); !top.Hides(".", true) {
		t.Error("a source that is excluded is not hidden")
	}
	if top := matcherOf(t, Place{Dir: "/src"}, "- *", "-/ src"); top.Hides(".", true) || top.Protects(".", true, false) {
		t.Error("the top of a copy without a name is hidden")
	}
}

func TestSides(t *testing.T) {
	m := matcherOf(t, Place{}, "-s a", "-r b", "-p c", "+ d", "-sr *")
	for _, c := range []struct {
		path                    string
		hides, protects, doomed bool
	}{{"a", true, true, true}, {"b", true, true, true}, {"c", true, true, true}, {"d", false, false, false}} {
		if m.Hides(c.path, false) != c.hides || m.Protects(c.path, false, false) != c.protects || m.Protects(c.path, false, true) != c.doomed {
			t.Errorf("%+v is not so", c)
		}
	}
	m = matcherOf(t, Place{}, "-s a", "-r b", "-p c")
	if !m.Hides("a", false) || m.Protects("a", false, false) || m.Hides("b", false) || !m.Protects("b", false, false) {
		t.Error("rules do not keep to their side")
	}
	if !m.Protects("c", false, false) || m.Protects("c", false, true) {
		t.Error("a perishable rule holds in a directory that is being deleted, or nowhere else")
	}
}

// TestNoPatternTakesLong has patterns on which a backtracking matcher takes
// exponential time.
func TestNoPatternTakesLong(t *testing.T) {
	name := strings.Repeat(strings.Repeat("a", 255)+"/", 15) + strings.Repeat("a", 255)
	for _, pattern := range []string{
		strings.Repeat("**a", 1000) + "b", strings.Repeat("*a", 2000) + "b", "x" + strings.Repeat("**/*a", 800) + "b", strings.Repeat("[a]", 1000) + "**" + "b",
		strings.Repeat("?**", 1000) + "/b",
	} {
		m := matcherOf(t, Place{}, "- "+pattern)
		start := time.Now()
		if m.Hides(name, false) {
			t.Errorf("%.20s: matches", pattern)
		}
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("%.20s: took %v", pattern, took)
		}
	}
}

func TestNoAllocations(t *testing.T) {
	m := matcherOf(t, Place{Name: "src", Dir: "/home/me/src"}, "- *.o", "- /src/build/", "-/ /home/**/x*y", "+ [a-f]*/**/z", "- node_modules", "- *a*b*"+strings.Repeat("c", 40))
	path := strings.Repeat("some/where/", 8) + "file.c"
	if n := testing.AllocsPerRun(100, func() { m.Hides(path, false); m.Protects(path, true, false) }); n > 0 {
		t.Errorf("%v allocations for a name that no rule is about", n)
	}
}

func BenchmarkHides(b *testing.B) {
	m := matcherOf(b, Place{Name: "src"}, "- *.o", "- .git/", "- /src/build/", "- node_modules", "- *~", "- **/cache/*.tmp")
	for b.Loop() {
		m.Hides("some/where/below/the/top/file.c", false)
	}
}

func FuzzMatch(f *testing.F) {
	f.Add("a*[[:alpha:]]**/?", "a/b/c", true, true)
	f.Add("**/[]a-]***", "x", false, false)
	f.Add(`\[*/`, "[", true, false)
	f.Fuzz(func(t *testing.T, pattern, path string, isDir, absolute bool) {
		if len(path) > 4095 {
			return
		}
		rules, err := Compile([]Rule{{Pattern: pattern, Absolute: absolute}})
		if err != nil {
			return
		}
		not, err := Compile([]Rule{{Pattern: pattern, Absolute: absolute, Negate: true}})
		if err != nil {
			t.Fatal(err)
		}
		at := Place{Name: "n", Dir: "/d/n"}
		if rules.Matcher(at).Hides(path, isDir) == not.Matcher(at).Hides(path, isDir) {
			t.Fatalf("%q: both %q and its opposite, or none", path, pattern)
		}
	})
}
