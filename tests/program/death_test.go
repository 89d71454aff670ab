package program

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
	"gdrcp/xfer"
)

// slowBytes is the size of the copies that are disturbed. A proxy makes them slow over
// TCP; an emulated device is slow itself.
func slowBytes(l link) int64 {
	if l.transport == "verbs" {
		return 64 << 20
	}
	return 32 << 20
}

// slowDown returns an address at which a client reaches the server slowly.
func (s *sides) slowDown(t *testing.T) string {
	if s.link.transport == "verbs" {
		return s.via()
	}
	s.slow = (&proxy{bytesPerSecond: 6 << 20}).start(t, s.addr())
	return s.slow.addr()
}

// event is an event that ends a copy.
type event struct {
	name     string
	toServer bool
	signal   syscall.Signal
	// These are for the peer, or for the client that was asked to end: the exit code,
	// the line, and the time that it may take.
	code    int
	pattern string
	within  time.Duration
}

// silence is how long until a peer without activity counts as dead, and a heartbeat
// notices that.
func silence() time.Duration {
	t := xfer.DefaultTimeouts()
	return t.Silence + t.Heartbeat
}

// lastWord is how long an end that is stopped, or fails, takes to inform the peer: its
// last message waits for everything posted before it.
const lastWord = xfer.AbortWait

// leaving is how long a server takes after it was asked to stop: its sessions inform
// their peers and wait for them to disconnect.
func leaving() time.Duration { return lastWord + xfer.DefaultTimeouts().Linger }

// events returns all of them or, for a slow emulated device, a few: each device gets
// others.
func events(l link) []event {
	all := []event{
		{"client killed", false, syscall.SIGKILL, -1, "", 0},
		{"server killed", true, syscall.SIGKILL, 1, `.`, launch.Slow(lastWord)},
		{"client interrupted", false, syscall.SIGINT, 130, "interrupted", launch.Slow(lastWord)},
		{"server terminated", true, syscall.SIGTERM, 1, `(?i)stopp|shut`, launch.Slow(lastWord)},
		{"client terminated", false, syscall.SIGTERM, 130, "interrupted", launch.Slow(lastWord)},
		{"server stopped", true, syscall.SIGSTOP, 1, `(?i)silent|no sign|heard`, silence() + launch.Slow(lastWord)},
		{"client stopped", false, syscall.SIGSTOP, 0, "", silence() + launch.Slow(lastWord)},
	}
	if l.transport == "tcp" || full() {
		return all
	}
	if l.name == "siw0" {
		return []event{all[0], all[2]}
	}
	return []event{all[1], all[3], all[5]}
}

// TestDeath ends copies in their middle in every possible way, and checks what the peer
// reports and what is left.
func TestDeath(t *testing.T) {
	rdmatest.BesideOthers(t)
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			for _, e := range events(l) {
				t.Run(e.name, func(t *testing.T) {
					// On an emulated device the copies need the processors to
					// themselves. A stopped process needs none.
					if l.transport == "tcp" || e.signal == syscall.SIGSTOP {
						t.Parallel()
					}
					dies(t, newSides(t, l), slowBytes(l), d, e)
				})
			}
		})
	})
}

// dies ends a copy of a file between the two sides by e.
func dies(t *testing.T, s *sides, bytes int64, d direction, e event) {
	t.Helper()
	from, to := s.ends(d)
	makeFile(t, from+"/big", bytes, 1)
	client := start(t, s.as, append(s.copyArgs(), s.operands(d, s.slowDown(t), "big", "copy")...)...)
	awaitPartial(t, to, client)
	struck := client
	if e.toServer {
		struck = s.process
	}
	hit := time.Now()
	log := len(s.stderr.String())
	struck.signal(e.signal)
	switch {
	case e.toServer, e.signal == syscall.SIGINT, e.signal == syscall.SIGTERM:
		client.wait(e.within)
		client.wantFailure(e.code, e.pattern)
		t.Logf("the client ended after %.1f s: %s", time.Since(hit).Seconds(), client.stderr.String())
	}
	if !e.toServer {
		// Data in flight between the two may take its time to arrive.
		s.awaitSessionEnd(t, log, max(e.within, launch.Slow(lastWord)))
		t.Logf("the server ended the session after %.1f s: %s", time.Since(hit).Seconds(), s.stderr.String()[log:])
	}
	if _, err := os.Lstat(to + "/copy"); err == nil {
		t.Error("a part of a file bears its final name")
	}
	if e.signal == syscall.SIGSTOP {
		s.whoComesLate(t, d, e, client)
	}
	s.afterDeath(t, d, e, client)
}

// whoComesLate stops an end until its peer has given up, copies another file to the
// same place, and then continues the stopped end, which must not damage anything.
func (s *sides) whoComesLate(t *testing.T, d direction, e event, client *process) {
	t.Helper()
	from, to := s.ends(d)
	makeFile(t, from+"/other", 5*mib+1, 2)
	stopped := s.server
	if e.toServer {
		s.server = serveAs(t, s.as, s.link, s.there)
	}
	s.copy(t, s.operands(d, s.via(), "other", "copy")...).wantCode(0)
	if e.toServer {
		stopped.signal(syscall.SIGCONT)
		stopped.stop()
	} else {
		client.signal(syscall.SIGCONT)
		client.wantFailure(1, `.`)
	}
	if why := differAt(from+"/other", to+"/copy"); why != "" {
		t.Errorf("after who was stopped went on, the other copy %s", why)
	}
}

// awaitSessionEnd waits until the server has logged the end of a session, after the
// first log bytes of its output.
func (s *server) awaitSessionEnd(t *testing.T, log int, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); len(s.stderr.String()) == log; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after %v the server has not noticed what became of the client: %s", limit, s)
		}
	}
}

// afterDeath ends what is left of a copy and runs it again.
func (s *sides) afterDeath(t *testing.T, d direction, e event, client *process) {
	t.Helper()
	if e.toServer && e.signal != syscall.SIGSTOP {
		if e.signal == syscall.SIGTERM {
			if code := s.wait(launch.Slow(leaving())); code != 0 {
				t.Errorf("after SIGTERM the server ended with %d: %s", code, s.process)
			}
		} else {
			_ = s.cmd.Process.Kill()
			<-s.ended
		}
		s.checkLog()
		s.server = serveAs(t, s.as, s.link, s.there)
	}
	from, to := s.ends(d)
	client.wait(silence() + launch.Slow(lastWord))
	again := s.copy(t, s.operands(d, s.via(), "big", "copy")...)
	again.wantCode(0)
	if why := differAt(from+"/big", to+"/copy"); why != "" {
		t.Errorf("the second copy %s", why)
	}
	noTemps(t, to)
	s.stop()
}

// TestDeathInTree kills either end in the middle of many files: those with their final
// names must be correct.
func TestDeathInTree(t *testing.T) {
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			for _, server := range []bool{false, true} {
				if l.transport == "verbs" && !full() && server == d.push {
					continue
				}
				t.Run(fmt.Sprintf("server killed %v", server), func(t *testing.T) {
					if l.transport == "tcp" {
						t.Parallel()
					}
					diesInTree(t, l, d, server)
				})
			}
		})
	})
}

func diesInTree(t *testing.T, l link, d direction, server bool) {
	s := newSides(t, l)
	from, to := s.ends(d)
	files := 900
	if l.transport == "verbs" {
		files = 300
	}
	makeTree(t, from+"/tree", files, 7)
	operands := append(s.operands(d, s.slowDown(t), "tree", "copy"), "-rl")
	client := start(t, how{}, append(l.copyArgs(), operands...)...)
	for deadline := time.Now().Add(launch.Slow(20 * time.Second)); len(someFiles(to+"/copy", 40)) < 40; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("nothing arrives: %s", client)
		}
	}
	if server {
		s.signal(syscall.SIGKILL)
		client.wantFailure(1, `.`)
		s.server = serve(t, l, s.there)
	} else {
		client.signal(syscall.SIGKILL)
		<-client.ended
	}
	noneWrong(t, from+"/tree", to+"/copy")
	s.copy(t, append(s.operands(d, s.via(), "tree/.", "copy"), "-rl")...).wantCode(0)
	sameTree(t, from+"/tree", to+"/copy", false)
	noTemps(t, to)
}

// someFiles returns up to most of the files below dir that have their final names.
func someFiles(dir string, most int) []string {
	var found []string
	_ = filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error { // files appear and disappear
		if err == nil && d.Type().IsRegular() && !isTemp(path) {
			found = append(found, path)
		}
		if len(found) >= most {
			return filepath.SkipAll
		}
		return nil
	})
	return found
}

// TestTwoAtOnce makes two copies into one directory concurrently: the later one must
// not treat the other's unfinished files as leftovers.
func TestTwoAtOnce(t *testing.T) {
	rdmatest.BesideOthers(t)
	everyLink(t, func(t *testing.T, l link) {
		bothWays(t, func(t *testing.T, d direction) {
			if sampledOut(l, d) {
				return
			}
			s := newSides(t, l)
			from, to := s.ends(d)
			makeFile(t, from+"/big", slowBytes(l), 1)
			makeFile(t, from+"/small", 3<<20, 2)
			stale := filepath.Join(to, ".gdrcp-0123456789abcdef0123456789abcdef")
			write(t, stale, "left by a run that was killed")
			first := start(t, how{}, append(l.copyArgs(), s.operands(d, s.slowDown(t), "big", "big")...)...)
			awaitPartial(t, to, first)
			first.signal(syscall.SIGSTOP) // not long enough to count as silent
			s.copy(t, s.operands(d, s.via(), "small", "small")...).wantCode(0)
			if left := temps(to); len(left) != 2 || slices.Contains(left, stale) { // a partial file and its journal
				t.Errorf("beside a run that is under way another one left %q", left)
			}
			first.signal(syscall.SIGCONT)
			first.wantCode(0)
			for _, name := range []string{"big", "small"} {
				if why := differAt(from+"/"+name, to+"/"+name); why != "" {
					t.Errorf("%s: %s", name, why)
				}
			}
			noTemps(t, to)
			s.stop()
		})
	})
}
