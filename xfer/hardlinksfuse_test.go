package xfer_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/fusetest"
	"gdrcp/xfer"
)

// TestUnstableNumbers: on a file system that changes inode numbers, or numbers each path by itself,
// no file becomes another name of a different one, and the user learns that hard links may be lost.
func TestUnstableNumbers(t *testing.T) {
	then := time.Unix(1_500_000_000, 0)
	two := func(below, elsewhere string) error {
		at(t, filepath.Join(below, "d/a"), "one", then)
		at(t, filepath.Join(below, "e/b"), "two", then)
		return errors.Join(os.Link(filepath.Join(below, "d/a"), filepath.Join(elsewhere, "a")), os.Link(filepath.Join(below, "e/b"), filepath.Join(elsewhere, "b")))
	}
	renumbered := func(reuse bool) func(t testing.TB, below string) string {
		return func(t testing.TB, below string) string { return fusetest.MountRenumbered(t, below, reuse) }
	}
	for name, c := range map[string]struct {
		fill  func(below, elsewhere string) error
		mount func(t testing.TB, below string) string
		want  map[string]string
		first string
	}{
		"reused":  {two, renumbered(true), map[string]string{"d/a": "one", "e/b": "two"}, "e/b"},
		"changed": {two, renumbered(false), map[string]string{"d/a": "one", "e/b": "two"}, "e/b"},
		"one for each path": {
			func(below, elsewhere string) error {
				at(t, filepath.Join(below, "d/a"), "one", then)
				at(t, filepath.Join(below, "d/other"), "another", then)
				return errors.Join(os.Link(filepath.Join(below, "d/a"), filepath.Join(below, "d/b")), os.Link(filepath.Join(below, "d/other"), filepath.Join(elsewhere, "other")))
			},
			func(t testing.TB, below string) string {
				return fusetest.MountFolding(t, below, func(name string) string { return name }, false)
			},
			map[string]string{"d/a": "one", "d/b": "one", "d/other": "another"}, "d/b",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, required := range []bool{false, true} {
				below, elsewhere := t.TempDir(), t.TempDir()
				if err := c.fill(below, elsewhere); err != nil {
					t.Fatal(err)
				}
				o := xfer.Options{HardLinks: true, Times: true, RequireAttributes: required}
				contentsInto(t, tcpWay(t), c.mount(t, below), o, func(string) {}, func(t *testing.T, dst string, sum *xfer.Summary, _ *told) {
					for name, want := range c.want {
						if got, err := os.ReadFile(filepath.Join(dst, name)); string(got) != want {
							t.Errorf("%s has %q, want %q: %v", name, got, want, err)
						}
					}
					lost := len(sum.Unkept) == 1 && sum.Unkept[0].Attribute == "hard links" && sum.Unkept[0].Entries == 1 && sum.Unkept[0].First == c.first
					if lost == required || (sum.Failed == 1) != required {
						t.Errorf("required %v: not kept %+v, %d failed", required, sum.Unkept, sum.Failed)
					}
				})
			}
		})
	}
}
