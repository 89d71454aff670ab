package lint

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
)

func TestHidden(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string // the start of each report; empty if nothing is hidden
	}{
		{"nothing is hidden", map[string]string{
			"a/a.go": "package a\nimport \"m/b\"\ntype A struct {\n\tb.B\n\tnamed Other\n\tx int\n}\ntype Other struct{ x int }\nfunc (a *A) Do() {}\n",
			"b/b.go": "package b\ntype B struct { y int }\nfunc (b *B) Done() {}\n",
		}, nil},
		{"a field hides a field", map[string]string{
			"a/a.go": "package a\ntype A struct {\n\t*B\n\tmu int\n}\ntype B struct{ mu int }\n",
		}, []string{"a/a.go:2: A.mu hides A.B.mu"}},
		{"a method hides a method, and a field one of the depth below", map[string]string{
			"a/a.go": "package a\ntype A struct {\n\tB\n\tlast int\n}\ntype B struct{ C }\nfunc (a *A) take() {}\nfunc (b B) take() {}\n",
			"a/c.go": "package a\ntype C struct{}\nfunc (*C) last() {}\n",
		}, []string{"a/a.go:2: A.last hides A.B.C.last", "a/a.go:2: A.take hides A.B.take"}},
		{"one embedded type hides what another one embeds", map[string]string{
			"a/a.go": "package a\nimport other \"m/b\"\ntype A struct {\n\tNear\n\tother.Far\n}\ntype Near struct{ told int }\n",
			"b/b.go": "package b\ntype Far struct{ *Deep }\ntype Deep struct{ told int }\n",
		}, []string{"a/a.go:3: A.Near.told hides A.Far.Deep.told"}},
		{"the name of an embedded type hides a field", map[string]string{
			"a/a.go": "package a\ntype A struct {\n\tB\n\tC\n}\ntype B struct{ C int }\ntype C struct{}\n",
		}, []string{"a/a.go:2: A.C hides A.B.C"}},
		{"by another name of a type, and with parameters", map[string]string{
			"a/a.go": "package a\ntype A[T any] struct {\n\tAlso\n\tG[T]\n\tx, y int\n}\ntype Also = B\ntype B struct{ x int }\ntype G[T any] struct{ y T }\n",
		}, []string{"a/a.go:2: A.x hides A.Also.x", "a/a.go:2: A.y hides A.G.y"}},
		{"a method in the place of an interface's", map[string]string{
			"a/a.go": "package a\ntype A struct{ I }\ntype I interface{ Close() }\nfunc (a *A) Close() {}\n",
		}, nil},
		{"a field in the place of an interface's method", map[string]string{
			"a/a.go": "package a\ntype A struct {\n\tI\n\tClose int\n}\ntype I interface{ Close() }\n",
		}, []string{"a/a.go:2: A.Close hides A.I.Close"}},
		{"tests and other modules", map[string]string{
			"a/a_test.go": "package a\ntype A struct {\n\tB\n\tx int\n}\ntype B struct{ x int }\n",
			"b/b.go":      "package b\nimport \"sync\"\ntype B struct {\n\tsync.Mutex\n}\nfunc (b *B) Lock() {}\n",
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for name, source := range tt.files {
				tree[name] = &fstest.MapFile{Data: []byte(source)}
			}
			found, err := Hidden(tree, "m")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.EqualFunc(found, tt.want, strings.HasPrefix) {
				t.Errorf("found %q, want %q", found, tt.want)
			}
		})
	}
}

func TestHiddenFailsOnWhatItCannotParse(t *testing.T) {
	tree := fstest.MapFS{"a.go": &fstest.MapFile{Data: []byte("package\n")}}
	if _, err := Hidden(tree, "m"); err == nil {
		t.Error("a file that is not Go passed")
	}
}

func TestProjectHidesNoName(t *testing.T) {
	found, err := Hidden(os.DirFS("../.."), projectRules.Module)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}
