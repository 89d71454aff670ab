package program

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// again restarts the server for a client that reaches it by slowDown: at the same port
// or, if another process has taken that, at another one behind the proxy.
func (s *sides) again(t *testing.T) {
	t.Helper()
	if s.slow != nil {
		s.server = serveAs(t, s.as, s.link, s.there)
		s.slow.lead(s.addr())
		return
	}
	s.server = serveAs(t, s.as, s.link, s.there, "--listen", fmt.Sprintf("0.0.0.0:%d", s.port))
}

// retrying returns copyArgs with that number of retries.
func (s *sides) retrying(retries string) []string {
	return append(s.copyArgs(), "--retries", retries)
}

// cutting returns a proxy to the server that cuts connections in the middle, that many
// times.
func (s *sides) cutting(t testing.TB, times int64) *proxy {
	t.Helper()
	var cuts atomic.Int64
	return (&proxy{spoil: func(_ towards, offset int64, b []byte) int {
		if offset > 12*mib && cuts.Add(1) <= times {
			return 0
		}
		return len(b)
	}}).start(t, s.addr())
}

// wantSummary fails the test unless the summary has these fields.
func (p *process) wantSummary(fields map[string]any) {
	p.t.Helper()
	got := p.event("summary")
	for name, want := range fields {
		if got[name] != want {
			p.t.Errorf("%s is %v, want %v: %s", name, got[name], want, p)
		}
	}
}

// wantForward fails the test if the progress of a copy goes backwards, or is missing.
func (p *process) wantForward() {
	p.t.Helper()
	told, bytes, total := 0, 0.0, 0.0
	for _, e := range p.events() {
		if e["event"] != "progress" {
			continue
		}
		told++
		if e["bytes"].(float64) < bytes || e["total_bytes"].(float64) < total {
			p.t.Errorf("%v after %.0f of %.0f bytes", e, bytes, total)
		}
		bytes, total = e["bytes"].(float64), e["total_bytes"].(float64)
	}
	if told == 0 {
		p.t.Errorf("no progress was told: %s", p)
	}
}

// TestServerComesBack kills a server in the middle of a tree and restarts it, twice:
// one command copies everything, counts each file once, as copied, and has the root of
// an undisturbed copy.
func TestServerComesBack(t *testing.T) {
	rdmatest.BesideOthers(t)
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			for _, options := range []string{"-rl", "-a"} {
				if l.transport == "verbs" && !full() && (options == "-a") == d.push {
					continue
				}
				t.Run(options, func(t *testing.T) { serverComesBack(t, newSides(t, l), d, options) })
			}
		})
	})
}

func serverComesBack(t *testing.T, s *sides, d direction, options string) {
	from, to := s.ends(d)
	makeTree(t, from+"/tree", 120, 7)
	makeFile(t, from+"/tree/d3/big", slowBytes(s.link), 1)
	makeFile(t, from+"/tree/a", mib, 2)
	makeFile(t, from+"/tree/z", 3*mib, 3)
	client := start(t, s.as, append(s.retrying("6"), append(s.operands(d, s.slowDown(t), "tree", "copy"), options, "--json")...)...)
	arrived := int64(0)
	var first os.FileInfo
	for range 2 {
		arrived = awaitBytes(to, arrived+slowBytes(s.link)/4, client)
		s.signal(syscall.SIGKILL)
		<-s.ended
		if first == nil {
			first = lstat(t, to+"/copy/a")
		}
		s.again(t)
	}
	client.wantCode(0)
	if !os.SameFile(first, lstat(t, to+"/copy/a")) {
		t.Error("a file that had its name was copied again")
	}
	sameTree(t, from+"/tree", to+"/copy", false)
	noTemps(t, to)
	whole := s.copy(t, append(s.operands(d, s.via(), "tree", "whole"), options, "--json")...).wantCode(0)
	want := whole.event("summary")
	client.wantSummary(map[string]any{
		"kept": 0.0, "resumed_bytes": 0.0, "verified": true,
		"files": want["files"], "dirs": want["dirs"], "links": want["links"], "bytes": want["bytes"], "root": want["root"], "meta_root": want["meta_root"],
	})
	if n := client.event("summary")["retries"].(float64); n < 1 { // one retry may cover both kills, and an attempt may find the server still starting
		t.Errorf("%v retries: %s", n, client)
	}
	if sent, bytes := client.event("summary")["wire_bytes"].(float64), want["bytes"].(float64); sent > 1.9*bytes {
		t.Errorf("%.0f bytes travelled for a copy of %.0f", sent, bytes)
	}
	s.stop()
}

// TestCutConnections cuts connections in the middle: the copy retries as often as it
// may, and resumes a large file.
func TestCutConnections(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/big", 40*mib, 1)
		t.Run("often enough", func(t *testing.T) {
			p := run(t, s.as, append(s.retrying("2"), append(s.operands(d, s.cutting(t, 2).addr(), "big", "copy"), "--json")...)...).wantCode(0)
			p.wantSummary(map[string]any{"retries": 2.0, "files": 1.0, "bytes": float64(40 * mib), "resumed_bytes": 0.0, "verified": true})
			p.wantForward()
			if sent := p.event("summary")["wire_bytes"].(float64); sent > 75*mib {
				t.Errorf("%.0f bytes travelled for 40 MiB, which arrived in three parts", sent)
			}
			if why := differAt(from+"/big", to+"/copy"); why != "" {
				t.Errorf("the copy %s", why)
			}
		})
		t.Run("not often enough", func(t *testing.T) {
			p := run(t, s.as, append(s.retrying("1"), s.operands(d, s.cutting(t, 2).addr(), "big", "other")...)...).wantCode(1)
			lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
			p.wantOne(lines, `^gdrcp: connection to .* lost: .*; the copy goes on in \d\.\d s \(retry 1 of 1\)$`)
			p.wantOne(lines, `^gdrcp: connection to .* lost: [^;]*$`)
			p.wantOne(lines, `^hint: run the same command again`)
		})
		t.Run("never", func(t *testing.T) {
			run(t, s.as, append(s.retrying("0"), s.operands(d, s.cutting(t, 1).addr(), "big", "third")...)...).wantFailure(1, `lost`)
		})
	})
}

// TestNotTriedAgain: an error that every attempt would meet ends the first one
// immediately.
func TestNotTriedAgain(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	makeFile(t, s.here+"/file", mib, 1)
	for _, c := range []struct {
		name string
		args []string
		code int
		want string
	}{
		{"nobody listens", []string{s.here + "/file", "rdma://127.0.0.1:1/copy"}, 1, `refused`},
		{"no such directory", []string{s.here + "/file", s.url("none/copy")}, 1, `the directory "/none" does not exist`},
		{"no such source", []string{s.url("none"), s.here + "/copy"}, 1, `no such file`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := run(t, s.as, append(s.retrying("3"), c.args...)...).wantFailure(c.code, c.want)
			if strings.Contains(p.stderr.String(), "retry") || p.took > launch.Slow(3*time.Second) {
				t.Errorf("after %v: %s", p.took, p)
			}
		})
	}
	t.Run("a failed file", func(t *testing.T) {
		makeFile(t, s.here+"/tree/good", mib, 2)
		must(t, os.MkdirAll(s.there+"/out/tree/bad", 0o755))
		write(t, s.here+"/tree/bad", "no directory")
		p := run(t, s.as, append(s.retrying("3"), "-r", s.here+"/tree", s.url("out"))...).wantCode(3)
		if strings.Contains(p.stderr.String(), "retry") {
			t.Error(p)
		}
	})
	s.stop()
}

// TestStoppedBetweenTries: a signal immediately ends a copy that waits for its next
// attempt.
func TestStoppedBetweenTries(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeFile(t, from+"/big", slowBytes(s.link), 1)
		client := start(t, s.as, append(s.retrying("9"), s.operands(d, s.slowDown(t), "big", "copy")...)...)
		awaitPartial(t, to, client)
		s.signal(syscall.SIGKILL)
		<-s.ended
		for deadline := time.Now().Add(launch.Slow(30 * time.Second)); !strings.Contains(client.stderr.String(), "retry 3 of 9"); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("no retry: %s", client)
			}
		}
		hit := time.Now()
		client.signal(syscall.SIGINT)
		client.wantCode(130)
		if took := time.Since(hit); took > launch.Slow(2*time.Second) {
			t.Errorf("it ended %v after the signal, in the middle of a wait", took)
		}
		if left := temps(to); d.push && len(left) != 2 || !d.push && len(left) != 2 {
			t.Errorf("left: %q", left)
		}
		if _, err := os.Lstat(filepath.Join(to, "copy")); err == nil {
			t.Error("a part of a file bears its final name")
		}
	})
}

// TestFailuresOfAllTries: a failure before a connection was lost counts once, and is
// reported once.
func TestFailuresOfAllTries(t *testing.T) {
	onHost(t)
	bothWaysByTCP(t, func(t *testing.T, s *sides, d direction, from, to string) {
		makeTree(t, from+"/tree", 30, 3)
		makeFile(t, from+"/tree/m", 24*mib, 1)
		must(t, syscall.Mkfifo(from+"/tree/a-fifo", 0o600))
		must(t, syscall.Mkfifo(from+"/tree/z-fifo", 0o600))
		write(t, from+"/tree/b", "in the way of a directory")
		must(t, os.MkdirAll(to+"/copy/tree/b", 0o755))
		x := s.cutting(t, 1)
		p := run(t, s.as, append(s.retrying("3"), append(s.operands(d, x.addr(), "tree", "copy"), "-r", "--json")...)...).wantCode(3)
		p.wantSummary(map[string]any{"retries": 1.0, "failed": 1.0, "skipped": 4.0, "files": 31.0, "kept": 0.0})
		for _, path := range []string{"a-fifo", "b"} {
			if n := strings.Count(p.stdout.String(), `"path":"`+path+`"`); n != 1 {
				t.Errorf("%s is told %d times: %s", path, n, p)
			}
		}
	})
}

// TestFailedInAnEarlierTry: a file that could not be read before the connection was
// lost also prevents the later attempt from deleting, and from giving a tree its name.
func TestFailedInAnEarlierTry(t *testing.T) {
	onHost(t)
	asRoot(t)
	for _, options := range [][]string{{"--delete"}, {"--atomic-dir", "--force-replace"}} {
		option := options[0]
		t.Run(option, func(t *testing.T) {
			s := &sides{here: reachable(t), there: reachable(t), as: how{uid: nobody}}
			s.server = serveAs(t, how{}, tcpLink(), s.there)
			copyIt := func(retries string) *process {
				args := s.operands(direction{push: true}, s.cutting(t, 1).addr(), "tree/.", "copy")
				return run(t, s.as, append(s.retrying(retries), append(append(args, "-r", "--json"), options...)...)...)
			}
			write(t, s.there+"/copy/old", "what was there")
			makeFile(t, s.here+"/tree/m", 24*mib, 1)
			if option == "--atomic-dir" { // the tree being made has an older file of that size
				write(t, s.here+"/tree/a", "first ")
				copyIt("0").wantCode(1)
			}
			write(t, s.here+"/tree/a", "second")
			must(t, os.Chmod(s.here+"/tree/a", 0))
			makeFile(t, s.here+"/tree/m", 24*mib, 2)
			p := copyIt("3").wantCode(3)
			p.wantSummary(map[string]any{"retries": 1.0, "failed": 1.0})
			if text, err := os.ReadFile(s.there + "/copy/old"); err != nil || string(text) != "what was there" {
				t.Errorf("what was there holds %q now (%v): %s", text, err, p)
			}
			s.stop()
		})
	}
}
