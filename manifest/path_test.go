package manifest

import (
	"errors"
	"strings"
	"testing"
)

func TestCheckPath(t *testing.T) {
	name := strings.Repeat("n", MaxNameBytes)
	long := strings.Repeat(name+"/", 15) + name // 4095 bytes
	for _, p := range []string{
		".", "a", "a/b", "...", "..a", "a..", ".hidden", "a b", " ", "\n", "\\", "a\tb", "\xff\xfe", "é", "~", "-r", name, long,
	} {
		if err := CheckPath(p); err != nil {
			t.Errorf("CheckPath(%.40q) = %v", p, err)
		}
	}
	for _, p := range []string{
		"", "/", "/a", "a/", "a//b", "./a", "a/.", "a/./b", "..", "../a", "a/..", "a/../b", "a\x00b", "\x00",
		name + "n", "a/" + name + "n/b", long + "/n", long[:len(long)-1] + "/n",
	} {
		if err := CheckPath(p); !errors.Is(err, ErrPath) {
			t.Errorf("CheckPath(%.40q) = %v, want ErrPath", p, err)
		}
	}
}

func TestEntryCheck(t *testing.T) {
	for name, c := range map[string]struct {
		e    Entry
		want error
	}{
		"file":              {Entry{Type: File, Path: "f", Size: 1<<63 - 1, Mode: 0o7777, MtimeNs: -1}, nil},
		"directory":         {Entry{Type: Dir, Path: "."}, nil},
		"link":              {Entry{Type: Symlink, Path: "l", Target: "../../blobs/\xff"}, nil},
		"bad path":          {Entry{Type: File, Path: "../f"}, ErrPath},
		"negative size":     {Entry{Type: File, Path: "f", Size: -1}, ErrEntry},
		"mode":              {Entry{Type: File, Path: "f", Mode: 0o10000}, ErrEntry},
		"type":              {Entry{Type: 'p', Path: "f"}, ErrEntry},
		"no type":           {Entry{Path: "f"}, ErrEntry},
		"top is file":       {Entry{Type: File, Path: "."}, ErrEntry},
		"file with target":  {Entry{Type: File, Path: "f", Target: "t"}, ErrEntry},
		"dir with target":   {Entry{Type: Dir, Path: "d", Target: "t"}, ErrEntry},
		"dir with size":     {Entry{Type: Dir, Path: "d", Size: 1}, ErrEntry},
		"link with root":    {Entry{Type: Symlink, Path: "l", Target: "t", Root: Digest{1}}, ErrEntry},
		"link of none":      {Entry{Type: Symlink, Path: "l"}, ErrEntry},
		"link to NUL":       {Entry{Type: Symlink, Path: "l", Target: "a\x00"}, ErrEntry},
		"link of 4096":      {Entry{Type: Symlink, Path: "l", Target: strings.Repeat("t", 4096)}, ErrEntry},
		"link of 4095":      {Entry{Type: Symlink, Path: "l", Target: strings.Repeat("t", 4095)}, nil},
		"link with a size":  {Entry{Type: Symlink, Path: "l", Target: "t", Size: 1}, ErrEntry},
		"link to elsewhere": {Entry{Type: Symlink, Path: "l", Target: "/etc/passwd"}, nil},
	} {
		if err := c.e.Check(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestIsBelow(t *testing.T) {
	for _, c := range []struct {
		path, dir string
		want      bool
	}{
		{"a/b", "a", true}, {"a/b/c", "a", true}, {"a", "a", false}, {"a-b", "a", false}, {"ab/c", "a", false}, {"a", "a/b", false}, {"a", ".", true},
	} {
		if got := IsBelow(c.path, c.dir); got != c.want {
			t.Errorf("%q below %q: %v", c.path, c.dir, got)
		}
	}
}
