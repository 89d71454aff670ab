package program

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"gdrcp/rdma/rdmatest"
)

// TestVerbsCopies copies trees in both directions over each device: the last line names
// the device and the kind of immediate.
func TestVerbsCopies(t *testing.T) {
	immediates := map[string]string{"rxe0": "write-with-imm", "siw0": "write+send"}
	for _, l := range needRDMA(t) {
		t.Run(l.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, d direction) {
				for i, options := range [][]string{nil, {"--qps", "3", "--slots", "4", "--chunk-size", "2MiB", "--compress", "s2"}} {
					if !full() && (i == 0) == sampledOut(l, d) {
						continue
					}
					s := newSides(t, l)
					from, to := s.ends(d)
					makeTree(t, from+"/tree", 60, 1)
					makeFile(t, from+"/tree/pieces", 9*mib+1, 2)
					p := s.copy(t, append(append(s.operands(d, s.via(), "tree", "copy"), "-rlpt", "--json"), options...)...).wantCode(0)
					sameTree(t, from+"/tree", to+"/copy", true)
					e := p.event("summary")
					if e["transport"] != "verbs" || e["device"] != l.name || e["verified"] != true {
						t.Errorf("the summary: %s", p)
					}
					if want, known := immediates[l.name]; known && e["imm"] != want {
						t.Errorf("%s takes immediates by %v, want %s", l.name, e["imm"], want)
					}
					s.stop()
				}
			})
		})
	}
}

// TestVerbsNeedsNoTCP reaches a server that has no TCP port at the address that the
// client knows.
func TestVerbsNeedsNoTCP(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	for i, l := range needRDMA(t) {
		t.Run(l.name, func(t *testing.T) {
			here, there := t.TempDir(), t.TempDir()
			makeFile(t, here+"/file", 2*mib, 1)
			port := 19473 + 10*i
			p := start(t, how{}, "serve", "--root", there, "--transport", "verbs", "--listen", fmt.Sprintf("0.0.0.0:%d", port))
			s := &server{process: p, root: there, link: l, port: port}
			for !s.isListening() {
				select {
				case <-p.ended:
					t.Fatalf("the server ended: %s", p)
				default:
				}
			}
			run(t, how{}, "--transport", "tcp", here+"/file", s.url("none")).wantFailure(1, `refused`)
			s.copy(t, here+"/file", s.url("copy")).wantCode(0)
			if why := differAt(here+"/file", there+"/copy"); why != "" {
				t.Error(why)
			}
			s.stop()
		})
	}
}

// TestAutoTakesVerbs reaches a server over TCP and asks it for something better.
func TestAutoTakesVerbs(t *testing.T) {
	links := needRDMA(t)
	here, there := t.TempDir(), t.TempDir()
	write(t, here+"/file", "content")
	s := serve(t, links[0], there)
	loopback := fmt.Sprintf("rdma://127.0.0.1:%d/", s.port)
	p := run(t, how{}, "-v", here+"/file", loopback+"auto").wantCode(0)
	p.wantOne(strings.Split(p.stderr.String(), "\n"), `^gdrcp: using verbs: \w+ (RoCE|iWARP).* reaches `)
	run(t, how{}, "--require", "verbs", here+"/file", loopback+"required").wantCode(0)
	for _, l := range links {
		p := run(t, how{}, "--rail", l.name, "--json", here+"/file", loopback+"rail-"+l.name).wantCode(0)
		if e := p.event("summary"); e["device"] != l.name {
			t.Errorf("--rail %s: %s", l.name, p)
		}
	}
	run(t, how{}, "--rail", "none0", "--transport", "verbs", here+"/file", loopback+"none").wantFailure(5, `none0`)
	s.stop()
	// A server without verbs: the reason is printed, and is an error if verbs is
	// required.
	plain := serve(t, tcpLink(), there)
	p = run(t, how{}, here+"/file", plain.url("plain")).wantCode(0)
	p.wantOne(strings.Split(p.stderr.String(), "\n"), `^gdrcp: using tcp: .*loopback`)
	run(t, how{}, "--require", "verbs", here+"/file", plain.url("none")).wantFailure(5, `loopback`)
	plain.stop()
}

// TestDevices: the present devices are listed with their kinds.
func TestDevices(t *testing.T) {
	needRDMA(t)
	p := run(t, how{}, "devices", "--json").wantCode(0)
	kinds := map[string]string{}
	for _, e := range p.events() {
		name, _ := e["name"].(string)
		kinds[name], _ = e["transport"].(string)
	}
	for name, want := range map[string]string{"rxe0": "RoCE", "siw0": "iWARP"} {
		if !strings.HasPrefix(kinds[name], want) {
			t.Errorf("%s is %q, want %s: %s", name, kinds[name], want, p)
		}
	}
	table := run(t, how{}, "devices").wantCode(0).stdout.String()
	for _, word := range []string{"rxe0", "siw0", "10.7.0.1", "10.8.0.1"} {
		if !strings.Contains(table, word) {
			t.Errorf("the table does not tell %s: %s", word, table)
		}
	}
}

// TestLockedMemory: if less memory may be locked than the ring takes, the error has the
// limit and the remedy. The limit applies to root without CAP_IPC_LOCK.
func TestLockedMemory(t *testing.T) {
	rdmatest.SampleOverDevices(t)
	links := needRDMA(t)
	asRoot(t)
	h := how{before: []string{"prlimit", "--memlock=65536:65536", "setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock"}}
	for _, tool := range []string{"prlimit", "setpriv"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range links {
		t.Run(l.name, func(t *testing.T) {
			s := newSides(t, l)
			write(t, s.here+"/file", "content")
			write(t, s.there+"/file", "content")
			for _, operands := range [][]string{{s.here + "/file", s.url("copy")}, {s.url("file"), s.here + "/copy"}} {
				p := run(t, h, append(l.copyArgs(), operands...)...)
				p.wantFailure(1, `(?s)limit.*(65536 bytes|64 KiB).*hint: .*ulimit -l`)
			}
			s.stop()
			limited := serveAs(t, h, l, s.there)
			s.server = limited
			s.copy(t, s.here+"/file", s.url("copy")).wantFailure(1, `.`)
			if log := limited.stderr.String(); !strings.Contains(log, "limit 65536 bytes") && !strings.Contains(log, "64 KiB") {
				t.Errorf("the server's log does not tell the limit: %s", log)
			}
			if _, err := os.Lstat(s.there + "/copy"); err == nil {
				t.Error("a failed copy left a file")
			}
			limited.stop()
		})
	}
}
