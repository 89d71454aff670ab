package cli

import (
	"bytes"
	"testing"
)

func TestPlainWriter(t *testing.T) {
	for _, c := range []struct{ given, want string }{
		{"copied 1 file\n", "copied 1 file\n"},
		{"\r 50% |███  |\r\t", "\r 50% |███  |\r\t"},
		{"a\x1b[2Jb\x07\x00", "a[2Jb"},
		{"é à ½ £\n", "é à ½ £\n"},
		{"a\u009b2Jb", "a2Jb"},
		{"a\xc2\xc2\x9bb\x7f", "ab"},
		{"a\u202egpj\u2066.\u200bexe\u2028", "agpj.exe"},
		{"a\xff\x9b2Jb", "a2Jb"}, // invalid UTF-8, and the beginning of a command to an 8-bit terminal
	} {
		for _, step := range []int{len(c.given), 1, 2, 3} {
			var out bytes.Buffer
			w := &plainWriter{w: &out}
			for at := 0; at < len(c.given); at += step {
				part := c.given[at:min(len(c.given), at+step)]
				if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
					t.Fatalf("%d, %v", n, err)
				}
			}
			if out.String() != c.want {
				t.Errorf("%q in steps of %d: %q, want %q", c.given, step, &out, c.want)
			}
		}
	}
}
