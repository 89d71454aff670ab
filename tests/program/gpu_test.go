package program

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"gdrcp/gpu/gputest"
	"gdrcp/tests/launch"
)

// The GPUs of these tests are gpu/fakecuda's: they show what the program does and
// reports, but nothing about how a GPU and a NIC work together.

// gpuWay is a link, and what a request for slots in a GPU finds there.
type gpuWay struct {
	name string
	link link
	as   how
	rung string
	why  string // matches why there is no better memory path; "" for the best one
	// flush is how a sink makes received data visible.
	flush string
}

func (w *gpuWay) direct() bool { return w.rung == "dma-buf" || w.rung == "peermem" }

// withGPUs starts processes with the fake's GPUs, in the mode that words for
// GDRCP_FAKE_CUDA select, and with further variables.
func withGPUs(t *testing.T, words []string, variables ...string) how {
	t.Helper()
	library, err := fakeCUDA()
	must(t, err)
	if library == "" {
		t.Skip("the program was built without GPUs: build it with CGO_ENABLED=1 and a C compiler")
	}
	env := append([]string{"env"}, gputest.Env(library, words...)...)
	return how{before: append(env, variables...)}
}

// gpuWays returns TCP or, if there are RDMA devices, the bed's substitutes for NICs
// that reach GPU memory and for those that do not.
func gpuWays(t *testing.T) []gpuWay {
	t.Helper()
	if len(rdmaLinks()) == 0 {
		return []gpuWay{{"tcp", tcpLink(), withGPUs(t, []string{"late=1"}), "staged", `TCP sockets do not reach GPU memory`, "none"}}
	}
	var ways []gpuWay
	for _, l := range rdmaLinks() {
		switch l.name {
		case "rxe0":
			ways = append(ways,
				gpuWay{"dma-buf", l, withDMABufs(t, "cc=8.0"), "dma-buf", "", "loopback read"},
				gpuWay{"peermem", l, withDMABufs(t, "peermem", "cc=9.0"), "peermem", `dma-buf: .+`, "none"},
				gpuWay{"plain library", l, withGPUs(t, nil), "staged", `dma-buf: .+; peermem: .+`, "none"})
		case "siw0":
			ways = append(ways, gpuWay{"siw", l, withDMABufs(t), "staged", `dma-buf: .+; peermem: .+`, "none"})
		}
	}
	return ways
}

// withDMABufs is withGPUs and the libibverbs with which rxe imports dma-bufs.
func withDMABufs(t *testing.T, words ...string) how {
	t.Helper()
	library := os.Getenv("BED_VERBS_DMABUF")
	if library == "" {
		t.Fatal("BED_VERBS_DMABUF names no library")
	}
	return withGPUs(t, words, "GDRCP_LIBIBVERBS="+library)
}

// gpuEnds are the ends with slots in a GPU.
type gpuEnds struct{ source, sink bool }

func (e gpuEnds) String() string {
	switch {
	case e.source && e.sink:
		return "both"
	case e.source:
		return "source"
	}
	return "sink"
}

// here reports whether the client has its slots in a GPU, and there whether the server
// has.
func (e gpuEnds) here(d direction) bool  { return d.push && e.source || !d.push && e.sink }
func (e gpuEnds) there(d direction) bool { return d.push && e.sink || !d.push && e.source }

func (e gpuEnds) args(d direction) (args []string) {
	if e.here(d) {
		args = append(args, "--gpu", "0")
	}
	if e.there(d) {
		args = append(args, "--remote-gpu", "auto")
	}
	return args
}

// TestGPUCopies copies a tree over each way, with slots in GPUs at either end and at
// both. It checks the text output of a push and the events of a pull.
func TestGPUCopies(t *testing.T) {
	for _, w := range gpuWays(t) {
		t.Run(w.name, func(t *testing.T) {
			s := newSidesAs(t, w.as, w.link)
			makeGPUTree(t, s.here+"/tree")
			makeGPUTree(t, s.there+"/tree")
			root := rootOf(t, s.here+"/tree")
			for _, e := range []gpuEnds{{true, true}, {true, false}, {false, true}} {
				for _, d := range []direction{{true}, {false}} {
					if w.link.transport == "verbs" && w.sampledOut(d, e) {
						continue
					}
					t.Run(e.String()+" "+d.String(), func(t *testing.T) { overGPU(t, &w, s, d, e, root) })
				}
			}
			s.stop()
		})
	}
}

// sampledOut reports whether a copy over an emulated device is skipped. Full runs skip
// none on the best memory path; on the others they skip copies with only one end in a
// GPU.
func (w *gpuWay) sampledOut(d direction, e gpuEnds) bool {
	best := w.rung == "dma-buf"
	if e.String() != "both" {
		return !best || !full()
	}
	return !best && sampledOut(w.link, d)
}

// makeGPUTree makes a tree with all kinds of contents of chunks: many small files, an
// empty one, one of several pieces, and holes.
func makeGPUTree(t *testing.T, dir string) {
	t.Helper()
	makeTree(t, dir, 60, 1)
	makeFile(t, dir+"/pieces", 3*mib+12345, 2)
	makeFile(t, dir+"/sparse", 3*mib/2, 3)
	must(t, os.Truncate(dir+"/sparse", 6*mib))
}

// rootOf returns the root of a tree as the processor computes it.
func rootOf(t *testing.T, tree string) string {
	t.Helper()
	p := run(t, how{}, "manifest", "create", "--hash", "blake3", "--json", "-o", os.DevNull, tree).wantCode(0)
	text, _ := p.event("created")["root"].(string)
	if len(text) != 64 {
		t.Fatalf("no root: %s", p)
	}
	return text
}

func overGPU(t *testing.T, w *gpuWay, s *sides, d direction, e gpuEnds, root string) {
	from, to := s.ends(d)
	name := "copy-" + e.String()
	log := len(s.stderr.String())
	args := append(append(s.operands(d, s.via(), "tree", name), "-rlpt"), e.args(d)...)
	if w.direct() {
		args = append(args, "--require", "gpudirect")
	}
	if d.push {
		p := s.copy(t, append(args, "-v")...).wantCode(0)
		w.checkText(p, d, e, root)
	} else {
		p := s.copy(t, append(args, "--json", "--chunk-size", "2MiB", "--slots", "8")...).wantCode(0)
		w.checkEvents(p, d, e, root)
	}
	sameTree(t, from+"/tree", to+"/"+name, true)
	if a, b := allocated(t, from+"/tree/sparse"), allocated(t, to+"/"+name+"/sparse"); b > a+mib {
		t.Errorf("holes did not stay holes: the original takes %d bytes, the copy %d", a, b)
	}
	want := regexp.MustCompile(`(?m)` + w.slots(e.there(d), e.here(d)) + `, verified: root blake3 ` + root + `$`)
	until(t, launch.Slow(lastWord), func() bool { return want.MatchString(s.stderr.String()[log:]) }, func() string {
		return fmt.Sprintf("the server told %q, which does not match /%s/", s.stderr.String()[log:], want)
	})
}

// memory describes where an end has its slots.
func (w *gpuWay) memory(inGPU bool) string {
	switch {
	case !inGPU:
		return "host memory"
	case w.direct():
		return "GPU 0 by " + w.rung
	}
	return "GPU 0, " + w.rung
}

// slots matches what an end reports about both ends' slots after a copy.
func (w *gpuWay) slots(here, there bool) string {
	place := func(inGPU bool) string {
		if inGPU && w.why != "" {
			return w.memory(true) + ` \(` + w.why + `\)`
		}
		return w.memory(inGPU)
	}
	return `, slots here in ` + place(here) + `, there in ` + place(there)
}

// flushOf returns how an end with slots in a GPU flushes.
func (w *gpuWay) flushOf(isSink bool) string {
	if isSink {
		return w.flush
	}
	return "none"
}

// checkText checks the output of a push with -v.
func (w *gpuWay) checkText(p *process, d direction, e gpuEnds, root string) {
	p.t.Helper()
	lines := strings.Split(strings.TrimSpace(p.stderr.String()), "\n")
	for _, end := range []struct {
		words       string
		inGPU, sink bool
	}{{"here", e.here(d), !d.push}, {"at the other end", e.there(d), d.push}} {
		if !end.inGPU {
			continue
		}
		want := `^gdrcp: slots ` + end.words + ` in ` + w.memory(true) + ` \(Fake GPU 0\)`
		if flush := w.flushOf(end.sink); flush != "none" {
			want += `, flushed by ` + flush
		}
		if w.why != "" {
			want += `: ` + w.why
		}
		p.wantOne(lines, want+`$`)
	}
	p.wantOne(lines, `^gdrcp: over .*`+w.slots(e.here(d), e.there(d))+`, .* on the wire`)
	p.wantOne(lines, `^gdrcp: root blake3 `+root+`, meta root `)
	p.wantOne(lines[len(lines)-1:], `^copied .*, verified$`)
	p.checkText(p.stderr.String())
}

// checkEvents checks the output of a pull with --json.
func (w *gpuWay) checkEvents(p *process, d direction, e gpuEnds, root string) {
	p.t.Helper()
	told := map[string]map[string]any{}
	for _, event := range p.events() {
		if event["event"] == "memory" {
			end, _ := event["end"].(string)
			told[end] = event
		}
	}
	summary := p.event("summary")
	if summary["root"] != root || summary["hash"] != "blake3" || summary["verified"] != true {
		p.t.Errorf("not verified with the root %s: %s", root, p)
	}
	for _, end := range []struct {
		name        string
		inGPU, sink bool
	}{{"local", e.here(d), !d.push}, {"remote", e.there(d), d.push}} {
		slots, _ := summary[end.name+"_slots"].(map[string]any)
		if !end.inGPU {
			if slots["gpu"] != -1.0 || slots["rung"] != "host" || told[end.name] != nil {
				p.t.Errorf("the %s slots are in host memory, and it told %v and %v", end.name, told[end.name], slots)
			}
			continue
		}
		for _, m := range []map[string]any{told[end.name], slots} {
			why, _ := m["why"].(string)
			if m["gpu"] != 0.0 || m["gpu_name"] != "Fake GPU 0" || m["rung"] != w.rung || m["flush"] != w.flushOf(end.sink) ||
				!regexp.MustCompile(`^`+w.why+`$`).MatchString(why) {
				p.t.Errorf("of the %s slots it told %v, want GPU 0 by %s, flush %s, why /%s/", end.name, m, w.rung, w.flushOf(end.sink), w.why)
			}
		}
	}
}

// TestGPUIsKept: a server reuses for the next client what it allocated on a GPU for an
// earlier one. Like a copy, it releases that when it ends.
func TestGPUIsKept(t *testing.T) {
	onHost(t)
	t.Parallel()
	const want = "context 0\nmodule 0\nend 0\n"
	d := direction{push: true}
	for option, copies := range map[string]int{"--remote-gpu": 3, "--gpu": 1} {
		log := t.TempDir() + "/log"
		with, server := withGPUs(t, []string{"log=" + log}), how{}
		if option == "--remote-gpu" {
			with, server = server, with
		}
		s := newSidesAs(t, server, tcpLink())
		s.as = with
		makeFile(t, s.here+"/file", mib, 1)
		for i := range copies {
			s.copy(t, append(s.operands(d, s.via(), "file", "copy"+strconv.Itoa(i)), option, "0")...).wantCode(0)
		}
		s.stop()
		made, err := os.ReadFile(log)
		must(t, err)
		if string(made) != want {
			t.Errorf("%s, %d copies: made %q, want %q", option, copies, made, want)
		}
	}
}

// TestGPUsAreToldOf runs `gdrcp devices` with and without GPUs.
func TestGPUsAreToldOf(t *testing.T) {
	onHost(t)
	table := run(t, withGPUs(t, []string{"gpus=2"}), "devices").stdout.String()
	for _, want := range []string{`(?m)^GPU +NAME +MEMORY`, `(?m)^0 +Fake GPU 0 +4 GiB`, `(?m)^1 +Fake GPU 1 `} {
		if !regexp.MustCompile(want).MatchString(table) {
			t.Errorf("the table does not match /%s/: %s", want, table)
		}
	}
	table = run(t, withGPUs(t, []string{"none"}), "devices").stdout.String()
	if !regexp.MustCompile(`(?m)^no GPU: .*CUDA_ERROR_NO_DEVICE`).MatchString(table) {
		t.Errorf("it does not say why there is no GPU: %s", table)
	}
}
