package fileset

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestBadXattrs(t *testing.T) {
	long := strings.Repeat("n", maxXattrNameBytes)
	for _, good := range []map[string]string{nil, {"user.a": ""}, {long: strings.Repeat("v", maxXattrValueBytes)}} {
		if err := CheckXattrs(xattrsOf(good)); err != nil {
			t.Errorf("%.20q: %v", good, err)
		}
	}
	for name, bad := range map[string]Xattrs{
		"no name": xattrsOf(map[string]string{"": "v"}), "nul": xattrsOf(map[string]string{"user.\x00": "v"}),
		"long name":  xattrsOf(map[string]string{long + "n": "v"}),
		"long value": xattrsOf(map[string]string{"user.a": strings.Repeat("v", maxXattrValueBytes+1)}),
		"cut off":    xattrsOf(map[string]string{"user.a": "value"})[:9], "a length only": {200},
		"too many": bytes.Repeat(xattrsOf(map[string]string{"user.a": strings.Repeat("v", 1000)}), 1100),
	} {
		if err := CheckXattrs(bad); !errors.Is(err, errXattrs) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzXattrs(f *testing.F) {
	f.Add([]byte(xattrsOf(map[string]string{"user.a": "value", "trusted.b": ""})))
	f.Add([]byte{0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		bad, n := CheckXattrs(b) != nil, 0
		for name, value := range Xattrs(b).All() {
			n += len(binary.AppendUvarint(nil, uint64(len(name)))) + len(name) + len(binary.AppendUvarint(nil, uint64(len(value)))) + len(value)
			if name == "" || len(name) > maxXattrNameBytes || len(value) > maxXattrValueBytes {
				t.Fatalf("attribute %q of %d bytes", name, len(value))
			}
		}
		if n > len(b) || !bad && n == 0 && len(b) > 0 {
			t.Fatalf("%d bytes of %d", n, len(b))
		}
	})
}

func xattrsOf(attrs map[string]string) (x Xattrs) {
	for name, value := range attrs {
		x = x.Append(name, []byte(value))
	}
	return x
}
