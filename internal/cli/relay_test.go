package cli

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// beLiar makes the test binary a remote process that is asked to copy to another host
// and reports success whatever happened. Its value selects what it does before: see
// liar.
const beLiar = "GDRCP_TEST_BE_LIAR"

// liar is that process: it copies nothing, copies, or copies and is refused a second
// time.
func liar(how string) int {
	p := &program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, started: time.Now(),
		verbs: noDevices(), tcp: tcp.New(), timeouts: xfer.DefaultTimeouts(),
	}
	mux, talk, err := remote.Answer(context.Background(), stdio{p.stdin, p.stdout}, remote.Banner{Protocol: xfer.ProtocolVersion, Version: "lies"})
	if err != nil {
		return 1
	}
	defer mux.Close()
	wish, err := talk.Asked()
	if err != nil || wish.Run == nil {
		return 1
	}
	gone := make(chan error, 1)
	go func() { gone <- talk.Hear(context.Background()) }()
	if how != "nothing" {
		p.runFor(context.Background(), talk, wish.Run)
	}
	if how == "twice" {
		p.runFor(context.Background(), talk, wish.Run)
	}
	_ = talk.End(exitOK)
	<-gone
	return 0
}

// A copy between two hosts has succeeded only if the destination confirms it.
func TestRelayThatOnlyTheSourceCallsASuccess(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const doubt = "gdrcp: lies reports success, but good does not confirm it: "
	for _, c := range []struct {
		how, inTheWay string
		args          []string
		code          int
		says          string
	}{
		{how: "nothing", code: exitError, says: doubt + "nothing was copied\n"},
		{how: "fails", inTheWay: "data/a/kept", code: exitPartial, says: doubt + "not everything was copied\n"},
		{how: "copies", code: exitOK},
		{how: "copies", args: []string{"-n"}, code: exitOK},
		{how: "twice", code: exitOK},
	} {
		t.Run(c.how, func(t *testing.T) {
			src, dst := t.TempDir(), t.TempDir()
			makeFiles(t, src, map[string]string{"data/a": "one", "data/b": "two"})
			if c.inTheWay != "" {
				makeFiles(t, dst, map[string]string{c.inTheWay: "x"})
			}
			rsh := `sh -c 'host=$1; shift; if [ $host = lies ]; then export ` + beLiar + `=` + c.how + `; fi; exec sh -c "$*"' rsh`
			args := append(c.args, "--rsh", rsh, "--remote-path", beMain+"=1 "+exe, "-r", "lies:"+src+"/data", "good:"+dst)
			r := gdrcp(t, args...).want(t, c.code)
			if c.says != "" && !strings.Contains(r.err, c.says) || c.says == "" && strings.Contains(r.err, "does not confirm") {
				t.Errorf("it wrote %q, want %q", r.err, c.says)
			}
		})
	}
}
