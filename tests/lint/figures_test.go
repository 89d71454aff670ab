package lint

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"text/tabwriter"
)

// TestFigures prints the figures (make figures) and compares them with their limits.
func TestFigures(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	f, err := Measure(root)
	if err != nil {
		t.Fatal(err)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tvalue\tlimit\tgoal\t\t")
	for _, l := range limits {
		value, places := l.of(f)
		in := ""
		if len(places) == 1 {
			in = places[0]
		}
		fmt.Fprintf(w, "%s\t%.5g\t%g\t%g\t%s\t\n", l.name, value, l.most, l.goal, in)
		if value > l.most {
			t.Errorf("%s: %.5g, at most %g\n%s", l.name, value, l.most, strings.Join(places, "\n"))
		}
	}
	w.Flush()
}

// TestMeasure measures a module that has one of everything.
func TestMeasure(t *testing.T) {
	fields, methods := "", ""
	for i := range 21 {
		fields += fmt.Sprintf("f%d, ", i)
	}
	for i := range 41 {
		methods += fmt.Sprintf("func (many) m%d() {}\n", i)
	}
	root := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module gdrcp\n\ngo 1.26\n",
		"p/a.go":      "// Package p tells nothing.\npackage p\n\ntype one struct{ two *two }\n\nfunc (o *one) use() { o.two.three.x() }\n",
		"p/b.go":      "package p\n\ntype two struct{ three three[int] }\n",
		"p/c.go":      "package p\n\ntype three[T any] struct{ t T }\n\nfunc (*three[T]) x() { _ = new(one).two }\n",
		"p/d.go":      "package p\n\nvar _ one\n",
		"p/e.go":      "package p\n\ntype wide struct{ " + strings.TrimSuffix(fields, ", ") + " int }\n\nfunc (wide) m() {}\n\ntype many int\n\n" + methods,
		"xfer/q/a.go": "package q\n\nimport wire \"gdrcp/xfer/internal/wire\"\n\nfunc f(x wire.Set) bool { return x.Has(wire.FlagA|wire.FlagB) || x&wire.FlagA != 0 || x == wire.FlagA }\n",
		"gpu/a.go":    "// Package gpu is where.\npackage gpu\n",
		"xfer/internal/wire/a.go": "package wire\n\nimport _ \"gdrcp/gpu\"\n\ntype Set int\n\nconst FlagA, FlagB Set = 1, 2\n\n" +
			"func (s Set) Has(f Set) bool { return s&f != 0 }\n",
		"p/p_test.go":      "package p\n\nimport \"time\"\n\nfunc f() {\n\ttime.Sleep(1)\n\tfor {\n\t\ttime.Sleep(1)\n\t}\n}\n",
		"ptest/p.go":       "package ptest\n",
		"tests/t/t.go":     "package t\n",
		"docs/design/a.md": "One two three\n```\nwhere\n```\n",
		"CHANGELOG.md":     "# Changes\n\n## Unreleased\n- one\n- two\n\n## v1\n- three\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	f, err := Measure(root)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]any{
		"product": f.ProductLines, "tests": f.TestLines, "files": f.MostFiles, "lines": f.MostLines, "component": f.LargestComponent, "types": len(f.LargeTypes),
		"flags": len(f.FlagTests), "imports": f.ImportsOfWire, "sleeps": len(f.Sleeps), "design": f.DesignWords, "changes": f.ChangelogLines, "words": []int{f.words, f.where, f.tell},
	}
	want := map[string]any{
		"product": 6 + 3 + 5 + 3 + 8 + 41 + 5 + 2 + 9, "tests": 10 + 2, "files": counted{5, "p"}, "lines": counted{6 + 3 + 5 + 3 + 8 + 41, "p"}, "component": counted{3, "p"}, "types": 2,
		"flags": 2, "imports": []string{"xfer/internal/wire/a.go:3 gdrcp/gpu"}, "sleeps": 1, "design": 3, "changes": 3, "words": []int{4 + 4 + 3 + 6, 1, 1},
	}
	for name, w := range want {
		if !reflect.DeepEqual(got[name], w) {
			t.Errorf("%s: %v, want %v", name, got[name], w)
		}
	}
}
