package xfer_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/rdma/rdmatest"
	"gdrcp/xfer"
)

// rulesOf parses rules in the form of --filter.
func rulesOf(t *testing.T, texts ...string) []filter.Rule {
	t.Helper()
	var p filter.Parser
	for _, text := range texts {
		if err := p.Filter(text); err != nil {
			t.Fatal(err)
		}
	}
	return p.Rules()
}

// below lists the contents of a folder; "." for the folder itself.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		names = append(names, rel)
		return err
	})
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	return names
}

// TestRules copies with rules, among them as many as a list may have, and anchored names.
func TestRules(t *testing.T) { over(t, testRules) }

func testRules(t *testing.T, w way) {
	xfer.OnHost(t)
	s := serve(t, w)
	src := filepath.Join(t.TempDir(), "src")
	for _, name := range []string{"a.o", "a.c", "sub/b.o", "sub/keep.o", "sub/b.c", "out/x", "sub/out/x", "src/y"} {
		write(t, filepath.Join(src, name), []byte(name))
	}
	var many []string
	for i := range filter.MaxRules - 4 {
		many = append(many, fmt.Sprintf("- /src/%d/*%d*", i, i))
	}
	for _, c := range []struct {
		source string
		rules  []string
		want   []string
	}{
		{"src", append(many, "+ keep.o", "- *.o", "- /src/out/", "- b.c"), []string{".", "a.c", "src", "src/y", "sub", "sub/keep.o", "sub/out", "sub/out/x"}},
		{"src/.", []string{"- /out", "- *.o", "- sub/out/***"}, []string{".", "a.c", "src", "src/y", "sub", "sub/b.c"}},
		{"src", []string{"+ */", "+ *.c", "- *"}, []string{".", "a.c", "out", "src", "sub", "sub/b.c", "sub/out"}},
		{"src", []string{"P *.o", "-r *", "- /src/[os]*"}, []string{".", "a.c", "a.o"}},
		{"src", []string{"- src"}, nil},
		{"src/a.c", []string{"- *.c"}, nil},
	} {
		o := w.options(t)
		o.Rules = rulesOf(t, c.rules...)
		client := w.client(rdmatest.Faults{})
		pushed, err := client.Push(t.Context(), []string{filepath.Dir(src) + "/" + c.source}, s.ep, "copy", o)
		if err != nil {
			t.Fatalf("%s: push: %v", c.source, err)
		}
		if got := below(t, s.root+"/copy"); !slices.Equal(got, c.want) || !pushed.Verified {
			t.Errorf("push of %s by %.80q: %q, want %q", c.source, c.rules, got, c.want)
		}
		if err := os.CopyFS(s.root+"/src", os.DirFS(src)); err != nil {
			t.Fatal(err)
		}
		dst := filepath.Join(t.TempDir(), "copy")
		pulled, err := client.Pull(t.Context(), s.ep, []string{c.source}, dst, o)
		if err != nil {
			t.Fatalf("%s: pull: %v", c.source, err)
		}
		if got := below(t, dst); !slices.Equal(got, c.want) || pulled.Content != pushed.Content {
			t.Errorf("pull of %s by %.80q: %q, want %q", c.source, c.rules, got, c.want)
		}
		for _, dir := range []string{"/copy", "/src"} {
			if err := os.RemoveAll(s.root + dir); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRulesForSources: how names of several sources are anchored, and that rules which no server
// would accept are refused before any connection.
func TestRulesForSources(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	dir := t.TempDir()
	for _, name := range []string{"one/x", "one/y", "two/x", "two/y", "x"} {
		write(t, filepath.Join(dir, name), []byte(name))
	}
	o := w.options(t)
	o.Rules = rulesOf(t, "- /one/x", "-/ "+dir+"/two/y", "-/ /x")
	if err := os.Mkdir(s.root+"/copy", 0o755); err != nil {
		t.Fatal(err)
	}
	client := w.client(rdmatest.Faults{})
	if _, err := client.Push(t.Context(), []string{dir + "/one", dir + "/two", dir + "/x"}, s.ep, "copy", o); err != nil {
		t.Fatal(err)
	}
	if got, want := below(t, s.root+"/copy"), []string{".", "one", "one/y", "two", "two/x", "x"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	o.Rules = []filter.Rule{{Pattern: ""}}
	if _, err := client.Push(t.Context(), []string{dir + "/x"}, s.ep, "copy", o); xfer.Classify(err) != xfer.ClassUsage {
		t.Errorf("a rule without a pattern: %v", err)
	}
}

// TestLists copies the entries of long lists: more than the parts that may be in flight, and than
// the entries that may.
func TestLists(t *testing.T) { over(t, testLists) }

func testLists(t *testing.T, w way) {
	xfer.OnHost(t)
	if testing.Short() {
		t.Skip("makes thousands of files: run without -short")
	}
	s := serve(t, w)
	src := filepath.Join(t.TempDir(), "src")
	b := chunker.NewListBuilder()
	defer b.Close()
	want := []string{".", "more"}
	const files = 9000
	long := strings.Repeat("n", 120)
	for i := range files {
		dir := fmt.Sprintf("d%d%s", i%7, long)
		if i < 7 {
			if err := os.MkdirAll(filepath.Join(src, dir), 0o755); err != nil {
				t.Fatal(err)
			}
			want = append(want, dir)
		}
		name := fmt.Sprintf("%s/f%d%s", dir, i, long)
		if i%2 == 0 || i < 100 {
			if err := os.Symlink("x", filepath.Join(src, name)); err != nil {
				t.Fatal(err)
			}
		}
		if i%2 == 0 {
			want = append(want, name)
			if err := b.Add(name); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(t, filepath.Join(src, "more/x"), []byte("x"))
	if err := b.Add("more"); err != nil {
		t.Fatal(err)
	}
	list, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	slices.Sort(want)
	o := w.options(t)
	o.Recursive, o.Names = false, list
	client := w.client(rdmatest.Faults{})
	pushed, err := client.Push(t.Context(), []string{src}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(src, s.root+"/src"); err != nil {
		t.Fatal(err)
	}
	dst := filepath.Join(t.TempDir(), "copy")
	pulled, err := client.Pull(t.Context(), s.ep, []string{"src"}, dst, o)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{s.root + "/copy", dst} {
		got := below(t, dir)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%d entries of %d arrived", len(got), len(want))
		}
	}
	if pulled.Content != pushed.Content || !pulled.Verified {
		t.Errorf("roots %x and %x", pushed.Content, pulled.Content)
	}
}

func TestListsOfWhat(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	src := t.TempDir()
	write(t, src+"/file", []byte("x"))
	write(t, s.root+"/file", []byte("x"))
	b := chunker.NewListBuilder()
	if err := b.Add("file"); err != nil {
		t.Fatal(err)
	}
	list, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	o := w.options(t)
	o.Names = list
	client := w.client(rdmatest.Faults{})
	if _, err := client.Push(t.Context(), []string{src, src + "/file"}, s.ep, "copy", o); xfer.Classify(err) != xfer.ClassUsage {
		t.Errorf("a list of several sources: %v", err)
	}
	if _, err := client.Pull(t.Context(), s.ep, []string{"a", "b"}, src, o); xfer.Classify(err) != xfer.ClassUsage {
		t.Errorf("a list of several sources: %v", err)
	}
	for _, source := range []string{"file", "none"} {
		if _, err := client.Push(t.Context(), []string{src + "/" + source}, s.ep, "copy", o); err == nil {
			t.Errorf("a list of %s, which is no directory, is pushed", source)
		}
		if _, err := client.Pull(t.Context(), s.ep, []string{source}, src+"/copy", o); err == nil {
			t.Errorf("a list of %s, which is no directory, is pulled", source)
		}
	}
}

// If nothing may be made, the top of a list is not made either.
func TestListsMakeNoTop(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	src := t.TempDir()
	write(t, src+"/dir/file", []byte("x"))
	b := chunker.NewListBuilder()
	if err := b.Add("dir/file"); err != nil {
		t.Fatal(err)
	}
	list, err := b.Finish()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		change func(o *xfer.Options)
		want   []string
	}{
		{func(o *xfer.Options) { o.DryRun = true }, nil},
		{func(o *xfer.Options) { o.Existing = true }, nil},
		{func(*xfer.Options) {}, []string{".", "dir", "dir/file"}},
	} {
		o := w.options(t)
		o.Names = list
		c.change(&o)
		if _, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src}, s.ep, "copy", o); err != nil {
			t.Fatal(err)
		}
		if got := below(t, s.root+"/copy"); !slices.Equal(got, c.want) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
}

// TestManyDeletions fills messages about deletions to their last byte.
func TestManyDeletions(t *testing.T) {
	w := tcpWay(t)
	s := serve(t, w)
	src := t.TempDir()
	write(t, src+"/kept", []byte("x"))
	for i := range 600 {
		write(t, fmt.Sprintf("%s/copy/%d%s", s.root, i, strings.Repeat("n", i%200)), nil)
	}
	o := w.options(t)
	o.Delete = true
	sum, err := w.client(rdmatest.Faults{}).Push(t.Context(), []string{src + "/."}, s.ep, "copy", o)
	if err != nil {
		t.Fatal(err)
	}
	if got := below(t, s.root+"/copy"); sum.Deleted != 600 || !slices.Equal(got, []string{".", "kept"}) {
		t.Errorf("%d deleted, %d are there", sum.Deleted, len(got))
	}
}
