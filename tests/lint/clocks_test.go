package lint

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"strings"
	"testing"
)

// wallClock lists how often files read nanoseconds of the wall clock, to compare them with
// times of files or to set those. A difference of two such readings is no duration:
// somebody may set the clock between them.
var wallClock = map[string]int{
	"chunker/dest/adopt.go":      1,
	"chunker/dest/clean.go":      2,
	"chunker/dest/otherhosts.go": 1,
	"chunker/dest/stage.go":      1,
	"internal/fileset/stamp.go":  1,
	"internal/audit/cut.go":      1,
	"xfer/input.go":              1,
}

func TestDurationsAreByTheMonotonicClock(t *testing.T) {
	root, found := os.DirFS("../.."), make(map[string]int)
	err := eachFile(root, func(name string) error {
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		source, err := fs.ReadFile(root, name)
		if n := bytes.Count(source, []byte(".UnixNano()")); n > 0 {
			found[name] = n
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(found, wallClock) {
		t.Errorf("UnixNano is called in %v, and this table has %v: durations are time.Since, or of stat.Now", found, wallClock)
	}
}
