package cli

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"

	"golang.org/x/sys/unix"
)

// Kept entries were not compared and failed ones did not arrive: neither the client nor
// the server reports more as "verified" than was copied.
func TestVerifiedIsOfWhatWasCopied(t *testing.T) {
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/same": "here", "t/new": "N", "t/blocked": "B"})
	makeFiles(t, s.root, map[string]string{"t/same": "THEY", "t/blocked/": ""})
	when := time.Unix(1_600_000_000, 0)
	for _, name := range []string{dir + "/t/same", s.root + "/t/same"} {
		if err := os.Chtimes(name, when, when); err != nil {
			t.Fatal(err)
		}
	}
	if err := unix.Mkfifo(dir+"/t/fifo", 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what         string
		args         []string
		code         int
		client, told string
	}{
		{"a file of other bytes that is kept", []string{"-tu", dir + "/t/same", s.url("t/same")}, exitOK,
			`copied nothing in \S+ s \(tcp\); 1 kept, not compared`, `0 files, 0 B in .*, nothing to verify; 1 kept, not compared`},
		{"all at once", []string{"-rtu", dir + "/t/.", s.url("t")}, exitPartial,
			`copied and verified 1 file, 1 directory, 1 B in \S+ s \(\S+ .?i?B/s, tcp\); 1 kept, not compared; 1 failed; 1 skipped`,
			`1 file, 1 directory, 1 B in .*, verified: root xxh3 [0-9a-f]{64}; 1 kept, not compared; 1 failed; 1 skipped`},
		{"a file that fails", []string{dir + "/t/blocked", s.url("t/")}, exitPartial,
			`copied nothing in \S+ s \(tcp\); 1 failed`, `0 files, .*, nothing to verify; 1 failed`},
		{"nothing but directories", []string{"-r", "--exclude=*", dir + "/t/.", s.url("t")}, exitOK,
			`copied 1 directory in \S+ s \(tcp\), verified`, `1 directory, .*, verified: root .*`},
		{"a good copy", []string{dir + "/t/new", s.url("t/new")}, exitOK,
			`copied 1 file, 1 B in \S+ s \(\S+ .?i?B/s, tcp\), verified`, `1 file, 1 B in .*, verified: root xxh3 [0-9a-f]{64}`},
	} {
		t.Run(c.what, func(t *testing.T) {
			before := len(s.errs.String())
			r := gdrcp(t, c.args...).want(t, c.code)
			if last := lastLine(r.err); !regexp.MustCompile("^" + c.client + "$").MatchString(last) {
				t.Errorf("the last line is %q, want %s", last, c.client)
			}
			told := regexp.MustCompile(`(?m)^gdrcp: test@\S+: push "/t[^"]*": ` + c.told + `$`)
			for end := time.Now().Add(10 * time.Second); !told.MatchString(s.errs.String()[before:]); time.Sleep(10 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("the server told %q, want %s", s.errs.String()[before:], told)
				}
			}
		})
	}
	if text, err := os.ReadFile(s.root + "/t/same"); err != nil || string(text) != "THEY" {
		t.Errorf("the kept file has %q, %v: there was nothing to say", text, err)
	}
}

// If anything was left out, the line does not end in "verified".
func TestSummaryText(t *testing.T) {
	good := xfer.Summary{Files: 40, Bytes: 400 << 20, Seconds: 0.983, Verified: true, Link: xfer.Link{Transport: "tcp", Device: "tcp"}}
	for want, change := range map[string]func(s *xfer.Summary){
		"copied 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp), verified":                                func(*xfer.Summary) {},
		"copied 40 files, 1 directory, 2 links, 400 MiB in 0.98 s (407 MiB/s, tcp), verified":          func(s *xfer.Summary) { s.Dirs, s.Links = 1, 2 },
		"copied 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp over ssh), verified":                       func(s *xfer.Summary) { s.Link.Device = pipeDevice },
		"copied 40 files, 400 MiB in 12.0 s (33.4 MiB/s, verbs, encrypted), verified":                  func(s *xfer.Summary) { s.Seconds, s.Link.Transport, s.Link.Encrypted = 11.99, "verbs", true },
		"copied 40 files, 400 MiB in 3600 s (114 KiB/s, tcp), verified":                                func(s *xfer.Summary) { s.Seconds = 3600 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 failed":                   func(s *xfer.Summary) { s.Failed = 1 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 attribute not kept":       func(s *xfer.Summary) { s.Unkept = make([]xfer.Unkept, 1) },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 changed while read":       func(s *xfer.Summary) { s.Changed = 1 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 2 corrupt; 3 missing":       func(s *xfer.Summary) { s.Corrupt, s.Missing = 2, 3 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 grew while copied":        func(s *xfer.Summary) { s.Grown = 1 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 7 kept, not compared":       func(s *xfer.Summary) { s.Kept = 7 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 skipped; 3 deleted":       func(s *xfer.Summary) { s.Skipped, s.Deleted = 1, 3 },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); at least 3 deleted":         func(s *xfer.Summary) { s.Deleted, s.DeletedAtLeast = 3, true },
		"copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); at least 0 deleted":         func(s *xfer.Summary) { s.DeletedAtLeast = true },
		"copied 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp), NOT verified; 1 failed":                  func(s *xfer.Summary) { s.Verified, s.Failed = false, 1 },
		"NOT in place, but copied and verified 40 files, 400 MiB in 0.98 s (407 MiB/s, tcp); 1 failed": func(s *xfer.Summary) { s.Withheld, s.Failed = true, 1 },
		"copied nothing in 0.98 s (tcp)": func(s *xfer.Summary) { s.Files, s.Bytes = 0, 0 },
		"dry run, nothing was changed: would copy 40 files, 400 MiB (tcp); 1 failed; 2 to be deleted": func(s *xfer.Summary) { s.DryRun, s.Failed, s.Deleted = true, 1, 2 },
	} {
		s := good
		change(&s)
		if got := summaryText(&s); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
		if stats := strings.Join(statsLines(&s), "\n"); strings.Contains(stats, "at least") != s.DeletedAtLeast {
			t.Errorf("--stats says %q", stats)
		}
		log, whole := logText(&s), strings.HasSuffix(want, ", verified")
		if vouches := strings.Contains(log, ", verified: root "); vouches != (s.Verified && !s.DryRun && s.Files > 0) || whole && strings.Contains(log, ";") {
			t.Errorf("of %q the log says %q", want, log)
		}
		if strings.HasPrefix(log, withheldClaim+": ") != s.Withheld {
			t.Errorf("of %q, where withheld is %v, the log says %q", want, s.Withheld, log)
		}
	}
}

// The reason for TCP is printed once if there is an RDMA device, usable or not, and
// otherwise only with -v.
func TestWhyTCP(t *testing.T) {
	s := startServer(t)
	dir, kernel := t.TempDir(), t.TempDir()
	makeFiles(t, dir, map[string]string{"a": "A"})
	makeFiles(t, kernel, map[string]string{"mlx5_0/node_type": "1: CA\n"})
	down := rdma.Device{Name: "mlx5_0", Problem: "port 1 is DOWN", Reason: rdma.NoActivePort}
	missing := &rdma.ProbeError{Reason: rdma.NoLibrary, Detail: "libibverbs.so.1: no such file"}
	for _, c := range []struct {
		name    string
		verbs   rdma.Provider
		kernel  string
		options string
		why     string // as printed, or empty
	}{
		{"no device", noDevices(), "", "", ""},
		{"no device, -v", noDevices(), "", "-v", "no RDMA device here: the kernel knows no RDMA device"},
		{"no library, no device", &deviceList{err: missing}, t.TempDir(), "", ""},
		{"no library", &deviceList{err: missing}, kernel, "", "no RDMA device here: libibverbs.so.1: no such file"},
		{"built without", nil, kernel, "", "this gdrcp was built without verbs"},
		{"a device that is down", &deviceList{devices: []rdma.Device{down}}, "", "", "no usable RDMA device here: mlx5_0: port 1 is DOWN"},
		{"a device that the server cannot be reached by", softDevice{tcp.New()}, "", "", `the server .*`},
		{"the same, quiet", softDevice{tcp.New()}, "", "-q", ""},
		{"the same, where TCP was asked for", softDevice{tcp.New()}, "", "--transport=tcp", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, errs := newProgram()
			p.verbs, p.kernelDevices = c.verbs, c.kernel
			args := append(strings.Fields(c.options), dir+"/a", s.url("a"))
			if code := p.run(t.Context(), append([]string{"gdrcp"}, args...)); code != exitOK {
				t.Fatalf("exit code %d: %s", code, errs)
			}
			why := regexp.MustCompile(`(?m)^gdrcp: using tcp: (.*)$`).FindAllStringSubmatch(errs.String(), -1)
			if c.why == "" && len(why) != 0 || c.why != "" && (len(why) != 1 || !regexp.MustCompile("^"+c.why+"$").MatchString(why[0][1])) {
				t.Errorf("it wrote %q, want the reason %q", errs, c.why)
			}
		})
	}
}

// A usable device is printed only with -v: the last line has the transport.
func TestLinkOfAGoodCopy(t *testing.T) {
	s := startServerWith(t, softDevice{tcp.New()}, "--listen", ":0")
	makeFiles(t, s.root, map[string]string{"a": "A"})
	for _, options := range []string{"", "-v"} {
		p, _, errs := newProgram()
		p.verbs = softDevice{p.tcp}
		if code := p.run(t.Context(), append([]string{"gdrcp", s.url("a"), t.TempDir()}, strings.Fields(options)...)); code != exitOK {
			t.Fatalf("exit code %d: %s", code, errs)
		}
		if told := strings.Contains(errs.String(), "gdrcp: using "); told != (options == "-v") || !strings.Contains(errs.String(), "B/s, ") {
			t.Errorf("with %q it wrote %q", options, errs)
		}
	}
}

// TestUnkeptTexts: there is one line for each attribute and file system.
func TestUnkeptTexts(t *testing.T) {
	s := xfer.Summary{Verified: true, Unkept: []xfer.Unkept{
		{Attribute: "time", Dir: ".", Entries: 1, First: "a", Reason: "not permitted"},
		{Attribute: "user.\x1b[m", Dir: "d", Entries: 12, First: "d/\n", Reason: "no\nroom"},
		{Attribute: "mode", Dir: ".", Entries: 2, First: "b", Reason: "not permitted", AtLeast: true},
	}}
	want := []string{`not kept: time of a: not permitted`, `not kept: user.\x1b[m of 12 entries, first "d/\n", on the file system at d: no\nroom`, "not kept: mode of 2 entries or more, first b: not permitted"}
	if got := undoneTexts(&s); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if e := eventOf(&s); len(e.Unkept) != 3 || !e.Unkept[2].AtLeast || e.Unkept[1].Entries != 12 || strings.Contains(e.Unkept[1].Attribute, "\x1b") {
		t.Errorf("%+v", e.Unkept)
	}
}
