package main

import (
	"os"
	"strings"
	"testing"
)

// intoFull runs the program with a standard output that takes nothing.
func intoFull(t *testing.T, args ...string) result {
	t.Helper()
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skipf("there is no device that is always full: %v", err)
	}
	defer full.Close()
	p, _, errs := newProgram()
	p.stdout = full
	return result{code: p.run(t.Context(), append([]string{"gdrcp"}, args...)), err: errs.String()}
}

// What standard output did not take is an error, told once, and does not hide
// a worse one.
func TestFullStandardOutput(t *testing.T) {
	const line = "write standard output: no space left on device\n"
	s := startServer(t)
	dir := t.TempDir()
	makeFiles(t, dir, map[string]string{"t/a": "A", "u/a": "B"})
	gdrcp(t, "manifest", "create", "-o", dir+"/m", dir+"/t").want(t, exitOK)
	for _, c := range []struct {
		args []string
		code int
	}{
		{[]string{"--help"}, exitError},
		{[]string{"--version"}, exitError},
		{[]string{"manifest", "show", dir + "/m"}, exitError},
		{[]string{"manifest", "create", dir + "/t"}, exitError},
		{[]string{"manifest", "verify", "-q", dir + "/m", dir + "/u"}, exitIntegrity},
		{[]string{"--json", "-r", dir + "/t", s.url("copy")}, exitError},
		{[]string{"bench", "--json", "--bytes", "1M", "--rounds", "0", "rdma://" + s.addr}, exitError},
	} {
		r := intoFull(t, c.args...).want(t, c.code)
		if !strings.HasSuffix(r.err, line) || strings.Count(r.err, "no space left") != 1 {
			t.Errorf("gdrcp %q wrote %q", c.args, r.err)
		}
	}
	if got := listFiles(t, s.root); got["copy/a"] != "A" {
		t.Errorf("the copy whose events were lost made %v", got)
	}
}
