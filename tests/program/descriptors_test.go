package program

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// TestKeysShareDescriptors: one key has as many sessions as possible, and each opens as
// many directories and files as possible. A server with a low descriptor limit still
// serves another key.
func TestKeysShareDescriptors(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	const most, greedy, dirs = 512, 14, 100
	dir := t.TempDir()
	var permits bytes.Buffer
	as := make(map[string]how)
	for _, id := range []string{"greedy", "other"} {
		key, err := trust.NewKey(id)
		must(t, err)
		must(t, key.WriteFile(dir+"/"+id+".key"))
		root := dir + "/" + id
		must(t, os.Mkdir(root, 0o755))
		must(t, (&trust.Permit{Key: key, Root: root}).WriteLine(&permits))
		as[id] = how{before: []string{"env", "GDRCP_KEY_FILE=" + dir + "/" + id + ".key"}}
	}
	must(t, os.WriteFile(dir+"/access", permits.Bytes(), 0o600))
	s := &sides{here: t.TempDir(), as: as["other"]}
	s.server = serveAs(t, how{before: []string{"prlimit", fmt.Sprintf("--nofile=%d:%d", most, most)}}, tcpLink(), "", "--access-file", dir+"/access")
	pid := s.cmd.Process.Pid
	for i := range dirs {
		at := fmt.Sprintf("%s/tree/%03d/a/b", s.here, i)
		must(t, os.MkdirAll(at, 0o755))
		makeFile(t, at+"/f", 256<<10, uint64(i))
		must(t, os.MkdirAll(fmt.Sprintf("%s/greedy/tree/%03d/a/b", dir, i), 0o755))
		makeFile(t, fmt.Sprintf("%s/greedy/tree/%03d/a/b/f", dir, i), 256<<10, uint64(i))
	}
	slowly := (&proxy{bytesPerSecond: 64 << 10}).start(t, s.addr())
	for i := range greedy {
		args := []string{"--transport", "tcp", "-r", s.here + "/tree", fmt.Sprintf("rdma://%s/copy%d", slowly.addr(), i)}
		if i%2 == 1 {
			args = []string{"--transport", "tcp", "-r", "rdma://" + slowly.addr() + "/tree", fmt.Sprintf("%s/copy%d", t.TempDir(), i)}
		}
		start(t, as["greedy"], args...)
	}
	// Wait until the greedy key copies, and no session of it opens more.
	open, since := 0, time.Now()
	copies := func() bool {
		begun, err := filepath.Glob(dir + "/greedy/copy*")
		must(t, err)
		return len(begun) > 0
	}
	for end := time.Now().Add(launch.Slow(20 * time.Second)); (time.Since(since) < 2*time.Second || !copies()) && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if now := descriptors(t, pid); now > open {
			open, since = now, time.Now()
		}
	}
	t.Logf("the server has %d files open", open)
	makeTree(t, s.here+"/mine", 50, 5)
	s.copy(t, "-rl", s.here+"/mine", s.url("mine")).wantCode(0)
	s.copy(t, "-rl", s.url("mine"), s.here+"/back").wantCode(0)
	sameTree(t, s.here+"/mine", filepath.Join(dir, "other/mine"), false)
	sameTree(t, s.here+"/mine", s.here+"/back", false)
	if !copies() {
		t.Error("the greedy key copied nothing")
	}
}
