package chunker

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/treetest"
	"gdrcp/manifest"
)

func listOf(t testing.TB, names ...string) *List {
	t.Helper()
	b := NewListBuilder()
	defer b.Close()
	for _, name := range names {
		if err := b.Add(name); err != nil {
			t.Fatal(err)
		}
	}
	l, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// itemsOf are a list's names, marked as ":" named, "/" with contents, "<" on the
// way to others.
func itemsOf(t testing.TB, names Names) (all []string) {
	t.Helper()
	for {
		item, err := names.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		text := item.Path
		for _, m := range []struct {
			on bool
			as string
		}{{item.Named, ":"}, {item.Contents, "/"}, {item.Implied, "<"}} {
			if m.on {
				text += m.as
			}
		}
		all = append(all, text)
	}
}

func TestList(t *testing.T) {
	l := listOf(t, "b", "/a/x", "a-b", "a", "./b//c/", "b", "../../d", "a/y/../z/.", "#", "a/x")
	want := []string{"#:", "a:<", "a-b:", "a/x:", "a/z:/", "b:<", "b/c:/", "d:"}
	for range 2 { // it can be read many times
		if got := itemsOf(t, l.Names()); !slices.Equal(got, want) || l.Len() != int64(len(want)) {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if got := itemsOf(t, listOf(t, "a", "/", "..", "").Names()); !slices.Equal(got, []string{".:/", "a:"}) {
		t.Errorf("%q", got)
	}
	if got := itemsOf(t, listOf(t).Names()); got != nil {
		t.Errorf("%q", got)
	}
	b := NewListBuilder()
	defer b.Close()
	for _, name := range []string{"a\x00b", strings.Repeat("x", 256), strings.Repeat("x/", 2048) + "x"} {
		if err := b.Add(name); !errors.Is(err, manifest.ErrPath) {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

// TestLargeList goes by way of runs in a file, and of a file for all of it.
func TestLargeList(t *testing.T) {
	treetest.NoLeaks(t)
	rng := rand.New(rand.NewPCG(3, 3))
	b := NewListBuilder()
	b.stack.Budget, b.stack.MinRun = 64<<10, 4<<10
	b.names = b.stack.Begin()
	want := map[string]bool{}
	long := strings.Repeat("n", 200)
	for range 30_000 {
		dir, name := fmt.Sprintf("dir%d%s", rng.IntN(50), long), fmt.Sprintf("dir%d%s/%d", rng.IntN(50), long, rng.IntN(20_000))
		want[dir+":"], want[name+":"] = true, true
		for _, n := range []string{dir, name} {
			if err := b.Add(n); err != nil {
				t.Fatal(err)
			}
		}
	}
	l, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if l.file == nil {
		t.Error("it is all in memory")
	}
	got := itemsOf(t, l.Names())
	for i := range got {
		got[i] = strings.TrimSuffix(got[i], "<")
	}
	if !slices.IsSortedFunc(got, func(a, b string) int { return manifest.ComparePaths(a[:len(a)-1], b[:len(b)-1]) }) {
		t.Error("it is not sorted")
	}
	for _, name := range got {
		delete(want, name)
	}
	if len(want) > 0 || int64(len(got)) != l.Len() {
		t.Errorf("%d names are missing, %d are there", len(want), len(got))
	}
}

func TestWalkOnly(t *testing.T) {
	treetest.NoLeaks(t)
	dir := t.TempDir()
	treetest.MakeTree(t, dir, "a/", "a/x=", "a/y=", "a/sub/", "a/sub/z=", "a-b=", "a.c/", "a.c/f=", "b/", "b/c/", "b/c/d=", "b/e=", "f=", "l>a")
	for _, c := range []struct {
		names     string
		recursive bool
		out       string // what is left out
		want      string
		missing   string
	}{
		{"a", false, "", "a", ""},
		{"a", true, "", "a a/sub a/sub/z a/x a/y", ""},
		{"a/", false, "", "a a/sub a/x a/y", ""},
		{"a a-b", true, "", "a a-b a/sub a/sub/z a/x a/y", ""},
		{"a/x a-b a.c", false, "", "a a-b a.c a/x", ""},
		{"b/c/d a/sub/z", false, "", "a a/sub a/sub/z b b/c b/c/d", ""},
		{"a/sub/z a/", false, "", "a a/sub a/sub/z a/x a/y", ""},
		{".", false, "", ". a a-b a.c b f l", ""},
		{". b/c/d", false, "", ". a a-b a.c b b/c b/c/d f l", ""},
		{"b/", true, "", "b b/c b/c/d b/e", ""},
		{"none a/none none/x f/x l/x a.c", false, "", "a.c", "a/none f/x l/x none none/x"},
		{"a/none a/x", false, "", "a a/x", "a/none"},
		{"a/sub/none a-b b/c/none b/e", false, "", "a-b b b/e", "a/sub/none b/c/none"},
		{"l", true, "", "l", ""},
		{"a/sub b/c", true, "a a/sub/z b/c", "a a/sub", ""},
		{"a a/x", true, "a a/y", "a a/x", ""},
		{"a/sub/z b/c/d", true, "a/sub/z b", "b b/c b/c/d", ""},
		{"a a/x b b/c", false, "a a/x b", "b b/c", ""},
		{"none a/none", false, "none a a/none", "", "a/none none"},
		{"", true, "", "", ""},
	} {
		w := openLocal(t, false, Source{dir + "/.", "."}).Walk(c.recursive)
		if c.out != "" {
			w.LeaveOut(func(path string, _ bool) bool { return slices.Contains(strings.Fields(c.out), path) })
		}
		if err := w.Only(listOf(t, strings.Fields(c.names)...).Names()); err != nil {
			t.Fatal(err)
		}
		got, problems := drain(t, w)
		var missing []string
		for path, err := range problems {
			if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ENOTDIR) {
				t.Errorf("%q: %v", c.names, err)
			}
			missing = append(missing, path)
		}
		slices.Sort(missing)
		if strings.Join(got, " ") != c.want || strings.Join(missing, " ") != c.missing {
			t.Errorf("%q: found %q without %q, want %q without %q", c.names, got, missing, c.want, c.missing)
		}
		w.Close()
	}
}

// What a list names is found and opened in directories that can be searched and not read; to
// list such a directory stays an error.
func TestListInUnreadableDirectories(t *testing.T) {
	for _, mode := range []os.FileMode{0o300, 0o311, 0o111} {
		dir := t.TempDir()
		treetest.MakeTree(t, dir, "d/", "d/f=text", "d/e/", "d/e/g=text")
		if os.Geteuid() == 0 {
			for _, name := range []string{"d", "d/e", "d/f"} {
				if err := os.Chown(filepath.Join(dir, name), 65534, 65534); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := os.Chmod(dir+"/d", mode); err != nil {
			t.Fatal(err)
		}
		treetest.AsNobody(t, dir, func() {
			tree := openLocal(t, false, Source{Path: dir, Name: "."})
			w := tree.Walk(false)
			if err := w.Only(listOf(t, "d/f", "d/e/g").Names()); err != nil {
				t.Fatal(err)
			}
			paths, problems := drain(t, w)
			if !slices.Contains(paths, "d/f") || !slices.Contains(paths, "d/e/g") || len(problems) != 0 {
				t.Errorf("mode %v: %q, %v", mode, paths, problems)
			}
			if f, err := tree.Open("d/f"); err != nil {
				t.Errorf("mode %v: %v", mode, err)
			} else {
				f.Close()
			}
			_, problems = walkAll(t, tree, true)
			if !errors.Is(problems["d"], fs.ErrPermission) {
				t.Errorf("mode %v: listing it: %v", mode, problems)
			}
		})
		if err := os.Chmod(dir+"/d", 0o755); err != nil {
			t.Fatal(err)
		}
	}
}
