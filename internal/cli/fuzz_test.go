package cli

import (
	"strings"
	"testing"

	"gdrcp/xfer"
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
			if x := explain(err, false); x.code != exitUsage || x.text == "" || strings.Contains(x.text, "\n") || xfer.Printable(x.text) != x.text {
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

// Arguments are never lost: each is an option, a value, an operand or an error.
func FuzzScan(f *testing.F) {
	for _, s := range []string{"a b -r", "-rp a -- -x", "--qps 4 --slots=8 a", "-oX manifest create p", "--json=true -", "-- --"} {
		f.Add(s)
	}
	p, _, _ := newProgram()
	commands := p.app().Commands
	f.Fuzz(func(t *testing.T, s string) {
		args := strings.Fields(s)
		a, err := scan(args, commands)
		if err != nil {
			return
		}
		var want int
		for _, g := range a.options {
			want += len(g.value)
		}
		for _, o := range a.operands {
			want += len(o)
		}
		if want > len(strings.Join(args, "")) {
			t.Errorf("%q became %+v", args, a)
		}
		if line, err := arrange(p.app(), args); err == nil && (len(line.args) < 2 || line.command == nil) {
			t.Errorf("%q became %+v", args, line)
		}
	})
}
