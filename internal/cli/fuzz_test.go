package cli

import (
	"strings"
	"testing"

	"gdrcp/internal/printable"
)

// Whatever is written as a target, it is local, a place of a server with a path
// of its own or of a host for ssh, or a usage error in one safe line.
func FuzzTarget(f *testing.F) {
	for _, s := range []string{"a", "rdma://h/x", "rdma://h:1/%41", "rdma://[::1]:65534/", "rdma://[fe80::1%25e]/", "h:/x", "rdma://\x00/\xff", "me@[::1]:x", "-h:x", "http://h"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := parseTarget(s)
		switch {
		case err != nil:
			if x := explain(err, false); x.code != exitUsage || x.text == "" || strings.Contains(x.text, "\n") || printable.Text(x.text) != x.text {
				t.Errorf("%q: %+v", s, x)
			}
		case !got.remote:
			if got.path != s {
				t.Errorf("%q became %q", s, got.path)
			}
		case got.ssh != nil:
			if got.ssh.host == "" || got.ssh.host[0] == '-' || strings.HasPrefix(got.ssh.user, "-") || got.path != "." && !strings.HasSuffix(s, ":"+got.path) {
				t.Errorf("%q became %v:%q", s, got.ssh, got.path)
			}
		case got.endpoint.Host == "", got.endpoint.Port == 0, got.endpoint.Port == 65535, got.path[0] != '/', strings.Contains(got.path, "\x00"):
			t.Errorf("%q became %+v", s, got)
		}
	})
}
