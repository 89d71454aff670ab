package cli

import (
	"reflect"
	"strings"
	"testing"

	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

func TestParseTarget(t *testing.T) {
	for _, c := range []struct {
		in, host string
		port     uint16
		path     string
		ssh      *sshHost
	}{
		{in: "rdma://h/a/b", host: "h", port: 7473, path: "/a/b"},
		{in: "RDMA://h", host: "h", port: 7473, path: "/"},
		{in: "rdma://h:1/", host: "h", port: 1, path: "/"},
		{in: "rdma://h:65534/d/", host: "h", port: 65534, path: "/d/"},
		{in: "rdma://10.7.0.1:80/x", host: "10.7.0.1", port: 80, path: "/x"},
		{in: "rdma://[::1]/x", host: "::1", port: 7473, path: "/x"},
		{in: "rdma://[fe80::1%25eth0]:99/x", host: "fe80::1%eth0", port: 99, path: "/x"},
		{in: "rdma://h/a%20b%2Fc%25", host: "h", port: 7473, path: "/a b/c%"},
		{in: "rdma://h/%FF%0a", host: "h", port: 7473, path: "/\xff\n"},
		{in: "rdma://h/a?b#c&d", host: "h", port: 7473, path: "/a?b#c&d"},
		{in: "rdma://h//x", host: "h", port: 7473, path: "//x"},
		{in: "h:b", ssh: &sshHost{"", "h"}, path: "b"},
		{in: "me@h:/b:c", ssh: &sshHost{"me", "h"}, path: "/b:c"},
		{in: "me@there@h:b", ssh: &sshHost{"me@there", "h"}, path: "b"},
		{in: "h:", ssh: &sshHost{"", "h"}, path: "."},
		{in: "h:~/x", ssh: &sshHost{"", "h"}, path: "~/x"},
		{in: "[::1]:b", ssh: &sshHost{"", "::1"}, path: "b"},
		{in: "[me@::1]:b", ssh: &sshHost{"me", "::1"}, path: "b"},
		{in: "me@[fe80::1%eth0]:b:c", ssh: &sshHost{"me", "fe80::1%eth0"}, path: "b:c"},
		{in: "h::b", ssh: &sshHost{"", "h"}, path: ":b"},
		{in: ":b", path: ":b"},
		{in: "./a:b", path: "./a:b"},
		{in: "d/a:b", path: "d/a:b"},
		{in: "[x]", path: "[x]"},
		{in: "./run@[1]:final", path: "./run@[1]:final"},
		{in: "/data/run@[h]:x", path: "/data/run@[h]:x"},
		{in: "[/x]:y", path: "[/x]:y"},
		{in: "run@[a:b/c]:x", path: "run@[a:b/c]:x"},
		{in: "./rdma:/x", path: "./rdma:/x"},
		{in: "-", path: "-"},
	} {
		got, err := parseTarget(c.in)
		want := target{given: c.in, path: c.path, remote: c.host != "" || c.ssh != nil, endpoint: xfer.Endpoint{Host: c.host, Port: c.port}, ssh: c.ssh}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", c.in, got, err, want)
		}
	}
}

func TestBadTargets(t *testing.T) {
	for in, why := range map[string]string{
		"":                  "an operand is empty",
		"http://h/x":        "the only form of URL is rdma://host[:port]/path",
		"-h:x":              "a host does not begin with a dash (a local file of that name is ./-h:x)",
		"-me@h:x":           "a user does not begin with a dash (a local file of that name is ./-me@h:x)",
		"me@:x":             "a host is missing (a local file of that name is ./me@:x)",
		"rdma://":           "a host is missing",
		"rdma:///x":         "a host is missing",
		"rdma://:1/x":       "a host is missing",
		"rdma://h:/x":       "a port is a number from 1 to 65534",
		"rdma://h:0/x":      "a port is a number from 1 to 65534",
		"rdma://h:65535/x":  "a port is a number from 1 to 65534",
		"rdma://h:99999/x":  "a port is a number from 1 to 65534",
		"rdma://h:+1/x":     "a port is a number from 1 to 65534",
		"rdma://::1/x":      "an IPv6 address is written in brackets: rdma://[::1]/path",
		"rdma://[::1/x":     "the [ of an IPv6 address has no ]",
		"rdma://[::1]x/x":   "only a port can follow the ] of an address",
		"rdma://[1.2.3.4]/": "only an IPv6 address can be in brackets",
		"rdma://me@h/x":     "user names are not supported: write rdma://host/path",
		"rdma://h /x":       "not a host name",
		"rdma://h\x1b[2J/x": "not a host name",
		"rdma://h/100%":     "bad percent-encoding (a % in a name is written %25)",
		"rdma://h/%zz":      "bad percent-encoding (a % in a name is written %25)",
		"rdma://h/a%00b":    "a name cannot hold a NUL",
	} {
		_, err := parseTarget(in)
		f := explain(err, false)
		if err == nil || f.code != exitUsage || !strings.HasSuffix(f.text, why) || printable.Text(f.text) != f.text {
			t.Errorf("%q: %+v, want %q", in, f, why)
		}
	}
}

func TestPlanCopy(t *testing.T) {
	for in, want := range map[string]plan{
		"a b rdma://h/d":              {push: true, endpoint: xfer.Endpoint{Host: "h", Port: 7473}, sources: []string{"a", "b"}, dst: "/d"},
		"rdma://h:9/a rdma://h:9/b c": {endpoint: xfer.Endpoint{Host: "h", Port: 9}, sources: []string{"/a", "/b"}, dst: "c"},
		"a b me@h:d":                  {push: true, far: &sshHost{"me", "h"}, sources: []string{"a", "b"}, dst: "d"},
		"h:a h:b c":                   {far: &sshHost{"", "h"}, sources: []string{"a", "b"}, dst: "c"},
		"a b /x:y":                    {push: true, local: true, sources: []string{"a", "b"}, dst: "/x:y"},
		"a -":                         {local: true, sources: []string{"a"}, dst: "-"},
		"h:a h:b i:c":                 {push: true, from: &sshHost{"", "h"}, far: &sshHost{"", "i"}, sources: []string{"a", "b"}, dst: "c"},
	} {
		p, err := planCopy(strings.Fields(in))
		if err == nil {
			p.endpoint.Key, p.endpoint.Addrs = want.endpoint.Key, want.endpoint.Addrs
		}
		if err != nil || !reflect.DeepEqual(p, &want) {
			t.Errorf("%s: %+v, %v; want %+v", in, p, err, want)
		}
	}
}

func TestCopiesThatCannotBe(t *testing.T) {
	for _, c := range []struct{ in, text, hint string }{
		{"- -", "a copy of standard input to standard output does not need gdrcp: use cat", ""},
		{"rdma://h/a rdma://i/b", "rdma://h/a and rdma://i/b are both remote: with rdma://, one end of the copy must be this machine", ""},
		{"a rdma://h/a rdma://h/b", "rdma://h/a and rdma://h/b are both remote: with rdma://, one end of the copy must be this machine", ""},
		{"h:a rdma://h/b", "h:a and rdma://h/b are both remote: with rdma://, one end of the copy must be this machine", ""},
		{"h:a i:b c", "h:a and i:b are on different servers: copy them one after the other", ""},
		{"h:a me@h:b i:c", "h:a and me@h:b are on different servers: copy them one after the other", ""},
		{"h:a rdma://h/b c", "h:a and rdma://h/b are on different servers: copy them one after the other", ""},
		{"rdma://h/a rdma://h:9/b c", "rdma://h/a and rdma://h:9/b are on different servers: copy them one after the other", ""},
	} {
		_, err := planCopy(strings.Fields(c.in))
		if f := explain(err, false); err == nil || f.text != c.text || f.hint != c.hint || f.code != exitUsage {
			t.Errorf("%s: %+v", c.in, f)
		}
	}
}

// Any target is local, a server's with its own path, a host's for ssh, or a usage error
// in one safe line.
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
