package chunker

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/manifest"
)

// A file has its attributes when a copy would leave it as it is.
func TestHasAttributes(t *testing.T) {
	dir := t.TempDir()
	needXattrs(t, dir)
	isRoot, own := os.Geteuid() == 0, Attributes{UID: os.Geteuid(), GID: os.Getegid()}
	with := func(x map[string]string) *Attributes { return &Attributes{UID: -1, GID: -1, Xattrs: encodeXattrs(x)} }
	all := Keep{Modes: true, Xattrs: true}
	for name, c := range map[string]struct {
		keep Keep
		mode uint32
		a    *Attributes
		want bool
	}{
		"the same":                 {all, 0o640, with(map[string]string{"user.a": "1"}), true},
		"a mode":                   {all, 0o600, with(map[string]string{"user.a": "1"}), false},
		"a mode that is not kept":  {Keep{}, 0o600, nil, true},
		"its owner":                {Keep{}, 0, &own, true},
		"an owner":                 {Keep{}, 0, &Attributes{UID: own.UID + 1, GID: -1}, !isRoot},
		"a group":                  {Keep{}, 0, &Attributes{UID: -1, GID: own.GID + 4711}, !isRoot},
		"a set-ID bit":             {Keep{Modes: true}, 0o4640, &own, false},
		"a bit of an unkept owner": {Keep{Modes: true}, 0o4640, nil, true},
		"a value":                  {all, 0o640, with(map[string]string{"user.a": "2"}), false},
		"one more":                 {all, 0o640, with(map[string]string{"user.a": "1", "user.b": ""}), false},
		"one less":                 {all, 0o640, nil, false},
		"a module's":               {all, 0o640, with(map[string]string{"user.a": "1", "security.selinux": "x"}), true},
		"attributes not kept":      {Keep{}, 0, with(nil), true},
	} {
		t.Run(name, func(t *testing.T) {
			path := dir + "/f"
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(path, 0o640); err != nil {
				t.Fatal(err)
			}
			if err := unix.Setxattr(path, "user.a", []byte("1"), 0); err != nil {
				t.Fatal(err)
			}
			s := sinkInto(t, dir, SinkOptions{Keep: c.keep})
			defer s.Close()
			got, err := s.HasAttributes(&manifest.Entry{Type: manifest.File, Path: "f", Mode: c.mode}, c.a)
			if got != c.want || err != nil {
				t.Errorf("%v, %v", got, err)
			}
		})
	}
}
