package remote

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gdrcp/internal/fusetest"
	"gdrcp/internal/pattern"
)

func TestExpand(t *testing.T) {
	home := filepath.Join(t.TempDir(), "ho[m]e")
	dir := filepath.Join(home, "d")
	for _, name := range []string{"a.bin", "b.bin", ".hidden.bin", "lit[er]al", "sub/x.bin", "sub2/x.bin"} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for _, c := range []struct {
		pattern string
		want    []string
	}{
		{"a.bin", []string{"a.bin"}},
		{"missing", []string{"missing"}},
		{"*.bin", []string{"a.bin", "b.bin"}},
		{".*.bin", []string{".hidden.bin"}},
		{"[ab].bin", []string{"a.bin", "b.bin"}},
		{"lit[er]al", []string{"lit[er]al"}},
		{"[!a].bin", []string{"b.bin"}},
		{"*/[!y].bin", []string{"sub/x.bin", "sub2/x.bin"}},
		{"[!.s]*", []string{"a.bin", "b.bin", "lit[er]al"}},
		{"*/x.bin", []string{"sub/x.bin", "sub2/x.bin"}},
		{"sub*/", []string{"sub/", "sub2/"}},
		{"nothing*", []string{"nothing*"}},
		{"~/d/?.bin", []string{"~/d/a.bin", "~/d/b.bin"}},
		{"./*.bin", []string{"./a.bin", "./b.bin"}},
		{"../d/*.bin", []string{"../d/a.bin", "../d/b.bin"}},
		{"/proc/self/stat[u]s", []string{"/proc/self/status"}},
	} {
		got, err := Expand(c.pattern, home)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, %v; want %q", c.pattern, got, err, c.want)
		}
		if err := Believe(c.pattern, got); err != nil {
			t.Errorf("%q: what this end says is not believed by the other: %v", c.pattern, err)
		}
	}
	if _, err := Expand("[", home); err == nil {
		t.Error("a damaged pattern is taken")
	}
}

// A name that a directory lists twice is returned once.
func TestExpandRepeatedNames(t *testing.T) {
	dir := fusetest.MountRepeating(t, "b.bin", "a.bin")
	want := []string{dir + "/a.bin", dir + "/b.bin"}
	got, err := Expand(dir+"/*.bin", "")
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v; want %q", got, err, want)
	}
	if err := Believe(dir+"/*.bin", got); err != nil {
		t.Error(err)
	}
}

func TestBelieve(t *testing.T) {
	for _, c := range []struct {
		pattern string
		names   []string
		ok      bool
	}{
		{"a", []string{"a"}, true},
		{"*.bin", []string{"*.bin"}, true}, // nothing matched
		{"*.bin", []string{"a.bin", "b.bin"}, true},
		{"d/*/x", []string{"d/1/x", "d/2/x"}, true},
		{"a", []string{"b"}, false},
		{"a", []string{"a", "b"}, false},
		{"a", nil, false},
		{"*.bin", []string{".bashrc"}, false},
		{"*", []string{".bashrc"}, false},
		{"*", []string{".."}, false},
		{".*", []string{".."}, false},
		{"d/*", []string{"d/../x"}, false},
		{"d/*", []string{"d/e/x"}, false},
		{"d/*", []string{"/d/e"}, false},
		{"d/*", []string{"d/a", "d/a"}, false},
		{"*", []string{"a\x00b"}, false},
		{"d/*", []string{"x/a"}, false},
		{"[", []string{"a"}, false},
	} {
		if err := Believe(c.pattern, c.names); (err == nil) != c.ok {
			t.Errorf("%q for %q: %v", c.names, c.pattern, err)
		}
	}
}

func FuzzBelieve(f *testing.F) {
	f.Add("d/*.bin", "d/a.bin")
	f.Add("*", "..")
	f.Fuzz(func(t *testing.T, path, name string) {
		if Believe(path, []string{name}) != nil || name == path {
			return
		}
		// Accepted names are in the requested directory, or in one that a
		// pattern of that depth matches.
		if slices.Contains(pattern.Parts(name), "..") && !slices.Contains(pattern.Parts(path), "..") {
			t.Fatalf("%q is believed for %q", name, path)
		}
		if len(pattern.Parts(name)) != len(pattern.Parts(path)) {
			t.Fatalf("%q is believed for %q: another depth", name, path)
		}
	})
}

func TestAtHome(t *testing.T) {
	for path, want := range map[string]string{
		"~": "/h/.", "~/": "/h/.", "~/x/": "/h/x/", "x": "x", "/x/~": "/x/~", "~me/x": "~me/x", "./~": "./~",
	} {
		if got := AtHome(path, "/h"); got != want {
			t.Errorf("%q: %q, want %q", path, got, want)
		}
	}
}
