package xfer_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"gdrcp/xfer"
)

// Each name of a file is kept, or not, depending on what exists by that name. Names that are not
// kept become links to a file that is kept as the same, as with rsync. If the file is kept for
// another reason, they fail: rsync sends them the file, but here data is sent by the first name
// only.
func TestHardLinksOfWhatIsKept(t *testing.T) { over(t, testHardLinksOfWhatIsKept) }

func testHardLinksOfWhatIsKept(t *testing.T, w way) {
	xfer.OnHost(t)
	then := time.Unix(1_500_000_000, 0)
	// The state of a/x and a/y, which are the same file, at the destination, by cases.
	const none, older, same, newer = 0, 1, 2, 3
	type outcomes = [2]xfer.Outcome
	const copied, kept, failed = xfer.Copied, xfer.Kept, xfer.Failed
	for _, c := range []struct {
		name   string
		set    func(*xfer.Options)
		there  [2]int
		want   outcomes
		linked bool
	}{
		{"the same, and nothing", nothing, [2]int{same, none}, outcomes{kept, kept}, true},
		{"twice the same", nothing, [2]int{same, same}, outcomes{kept, kept}, true},
		{"an older one, and the same", nothing, [2]int{older, same}, outcomes{copied, copied}, true},
		{"times are ignored", func(o *xfer.Options) { o.IgnoreTimes = true }, [2]int{same, same}, outcomes{copied, copied}, true},
		{"nothing is there", update, [2]int{none, none}, outcomes{copied, copied}, true},
		{"the first is the same", update, [2]int{same, none}, outcomes{kept, kept}, true},
		{"both are the same", update, [2]int{same, same}, outcomes{kept, kept}, true},
		{"the first is the same, the second older", update, [2]int{same, older}, outcomes{kept, kept}, true},
		{"the second is the same", update, [2]int{older, same}, outcomes{copied, copied}, true},
		{"the second is newer", update, [2]int{none, newer}, outcomes{copied, kept}, false},
		{"the first is the same, the second newer", update, [2]int{same, newer}, outcomes{kept, kept}, false},
		{"both are newer", update, [2]int{newer, newer}, outcomes{kept, kept}, false},
		{"the first is newer", update, [2]int{newer, none}, outcomes{kept, failed}, false},
		{"the first exists", func(o *xfer.Options) { o.IgnoreExisting = true }, [2]int{same, none}, outcomes{kept, failed}, false},
		{"the second exists", func(o *xfer.Options) { o.IgnoreExisting = true }, [2]int{none, same}, outcomes{copied, kept}, false},
		{"only the second exists", func(o *xfer.Options) { o.Existing = true }, [2]int{none, same}, outcomes{kept, failed}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			src := t.TempDir()
			at(t, filepath.Join(src, "a/x"), "source", then)
			if err := os.Link(filepath.Join(src, "a/x"), filepath.Join(src, "a/y")); err != nil {
				t.Fatal(err)
			}
			fill := func(dst string) {
				for i, name := range []string{"a/x", "a/y"} {
					path := filepath.Join(dst, name)
					switch c.there[i] {
					case older:
						at(t, path, "old", then.Add(-time.Hour))
					case same:
						at(t, path, "source", then)
					case newer:
						at(t, path, "new", then.Add(time.Hour))
					default:
						write(t, filepath.Join(dst, "a/other"), nil)
					}
				}
			}
			o := xfer.Options{HardLinks: true, Times: true}
			c.set(&o)
			check := func(t *testing.T, dst string, _ *xfer.Summary, l *told) {
				for i, name := range []string{"a/x", "a/y"} {
					if got := l.paths(ended(c.want[i])); !slices.Contains(got, name) {
						t.Errorf("%s is not among %q, of outcome %d", name, got, c.want[i])
					}
				}
				x, errX := os.Stat(filepath.Join(dst, "a/x"))
				y, errY := os.Stat(filepath.Join(dst, "a/y"))
				if linked := errX == nil && errY == nil && os.SameFile(x, y); linked != (c.linked && !o.DryRun) {
					t.Errorf("linked %v: %v, %v", linked, errX, errY)
				}
			}
			contentsInto(t, w, src, o, fill, check)
			o.DryRun = true
			t.Run("dry", func(t *testing.T) { contentsInto(t, w, src, o, fill, check) })
		})
	}
}

func update(o *xfer.Options) { o.Update = true }

func nothing(*xfer.Options) {}
