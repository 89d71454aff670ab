package soak

import (
	"crypto/sha256"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"gdrcp/tests/launch"
	"gdrcp/xfer"
)

// step is one copy of a tree during which something goes wrong, followed by the same
// copy again.
type step struct {
	t    *testing.T
	rng  *rand.Rand
	link link
	// from and to are the directories that contain the source and the copy; one of them
	// is the server's root.
	from, to string
	push     bool
	local    bool
	options  []string
	retries  []string // an option, or none if there are no retries
	source   *tree
	server   *server // nil for a copy on this machine
	proxy    *proxy  // over TCP, between the client and the server
	client   *process
	fault    fault
	// versions are the states of the source between the beginning and the end.
	versions []state
	// whole means that the tree is to appear in one step (--atomic-dir).
	whole bool
	// manifests is the directory in which each copy writes a manifest; "" means none.
	manifests string
	// was is the former state of the destination.
	was state
	// gone means that what arrived was removed.
	gone bool
}

// copied returns the path of the copy.
func (s *step) copied() string { return filepath.Join(s.to, "copy") }

// has reports whether the copy has one of these options.
func (s *step) has(options ...string) bool {
	return slices.ContainsFunc(s.options, func(o string) bool { return slices.Contains(options, o) })
}

// patience is the time limit of a copy that is undisturbed, or that waits for a silent
// peer.
const patience = 90 * time.Second

// newStep makes both directories, the source, and the server of one of them. If want is not
// nil, that is the fault.
func newStep(t *testing.T, rng *rand.Rand, want *fault) *step {
	s := &step{t: t, rng: rng, from: t.TempDir(), to: t.TempDir()}
	all := links()
	s.link = all[rng.IntN(len(all))]
	must(t, os.Mkdir(s.from+"/tree", 0o755))
	s.source = newTree(t, rng, s.from+"/tree")
	for s.choose(); want != nil && !want.fits(s); {
		s.choose()
	}
	if !s.local {
		s.serve()
	}
	if want != nil {
		s.fault = *want
	} else {
		s.fault = pick(s)
	}
	if s.fault.exchanges {
		s.retries = []string{"--retries", "3"}
	}
	if s.fault.large {
		for range 2 {
			s.source.file(s.source.fresh(), 16*mib+rng.Int64N(24*mib))
		}
	}
	if s.fault.mount != nil {
		s.fault.mount(s)
		if !s.local { // which may have the directory below
			s.server.stop()
			s.serve()
		}
	}
	if !s.whole || rng.IntN(2) == 0 {
		must(t, os.Mkdir(s.copied(), 0o755))
	}
	return s
}

// root returns the directory that the server serves.
func (s *step) root() string {
	if s.push {
		return s.to
	}
	return s.from
}

func (s *step) serve() {
	s.server = serve(s.t, s.link, s.root())
	if s.link.isTCP() {
		s.proxy = between(s.t, s.server.addr, rand.New(rand.NewPCG(s.rng.Uint64(), 0)))
	}
}

// choose picks the copy's direction and its options.
func (s *step) choose() {
	s.push, s.local = s.rng.IntN(2) == 0, s.rng.IntN(8) == 0
	s.options, s.retries, s.manifests = nil, nil, ""
	some := func(oneIn int, options ...string) {
		if s.rng.IntN(oneIn) == 0 {
			s.options = append(s.options, options...)
		}
	}
	one := func(words string) string {
		all := strings.Fields(words)
		return all[s.rng.IntN(len(all))]
	}
	s.options = append(s.options, one("-a -a -rlpt -rlt -rl"), "--json", "-v")
	some(3, "-H")
	some(3, "-I")
	if s.whole = s.rng.IntN(5) == 0; s.whole {
		s.options = append(s.options, "--atomic-dir", "--force-replace")
	} else {
		some(5, "--delete")
		some(5, "--checksum")
	}
	some(3, "--no-fsync")
	some(8, "--no-resume")
	some(8, "--recheck")
	some(6, "--verify-written")
	some(10, "--copy-growing")
	if s.rng.IntN(8) == 0 {
		s.manifests = s.t.TempDir()
	}
	some(3, "--hash", one("xxh3 blake3 crc32c sha256"))
	some(3, "--compress", one("zstd s2 auto"))
	some(3, "--chunk-size", one("1MiB 2MiB 7MiB"))
	some(2, "--slots", one("1 2 3 8 64"))
	if !s.local {
		some(3, "--qps", one("2 3 16"))
		some(3, "--encrypt")
		if s.rng.IntN(2) == 0 {
			s.retries = []string{"--retries", "3"}
		}
	}
}

// limit makes the copy take about as long as the fault may wait.
func (s *step) limit() (option []string, lasts time.Duration) {
	lasts = time.Duration(100+s.rng.IntN(1400)) * time.Millisecond
	if s.fault.large {
		lasts += 2 * markedAfter
	}
	rate := max(64<<10, int64(float64(s.source.bytes)/lasts.Seconds()))
	return []string{"--bwlimit", fmt.Sprintf("%dK", rate>>10)}, lasts
}

// markedAfter is a little longer than it takes until received data of a file is marked
// in its journal.
const markedAfter = 3 * time.Second

// begin starts the copy. name distinguishes concurrent copies.
func (s *step) begin(name string, more ...string) *process {
	args := append(slices.Clone(s.options), more...)
	if s.manifests != "" {
		args = append(args, "--write-manifest", filepath.Join(s.manifests, name))
	}
	source := "/tree/."
	if s.whole {
		source = "/tree"
	}
	from, to := s.from+source, s.copied()
	if !s.local {
		via := s.server.addr
		if s.proxy != nil {
			via = s.proxy.addr()
		}
		args = append(args, s.link.transport()...)
		args = append(args, s.retries...)
		if s.push {
			to = "rdma://" + via + "/copy"
		} else {
			from = "rdma://" + via + source
		}
	}
	return start(s.t, nil, nil, append(args, from, to)...)
}

// run runs the whole step.
func (s *step) run() {
	s.before()
	if s.fault.prepare != nil {
		s.fault.prepare(s)
	}
	s.noteVersion()
	s.was, _ = look(s.t, s.copied())
	limit, lasts := s.limit()
	s.client = s.begin("first", limit...)
	strike := time.Duration(s.rng.Int64N(int64(lasts + lasts/4)))
	if s.fault.large {
		strike = markedAfter + time.Duration(s.rng.Int64N(int64(lasts-markedAfter)))
	} else if s.fault.early {
		strike = 0
	}
	time.Sleep(strike)
	codes := s.fault.codes
	if s.fault.retried && s.retries != nil && s.manifests == "" { // copies with a manifest are not retried
		codes = []int{0}
		s.awaitAgreement()
	}
	undo := s.fault.strike(s)
	s.ended(s.client, codes)
	if undo != nil {
		undo()
	}
	last := s.noteVersion()
	s.arrived(s.client)
	s.again(last)
}

// noteVersion records the current state of the source. A copy of growing files may
// bring the beginning of one, at a size that the file had earlier.
func (s *step) noteVersion() state {
	now, _ := look(s.t, s.source.dir)
	for path, e := range now {
		if e.kind != 'f' || !s.has("--copy-growing") {
			continue
		}
		e.begins = make(map[int64][sha256.Size]byte)
		for _, v := range s.versions {
			size := v[path].size
			if _, known := e.begins[size]; known || v[path].kind != 'f' || size >= e.size {
				continue
			}
			_, sum, err := digest(s.source.at(path), size)
			must(s.t, err)
			e.begins[size] = sum
		}
		now[path] = e
	}
	s.versions = append(s.versions, now)
	return now
}

// agreementBytes is more than two ends send each other before they have agreed on a
// copy.
const agreementBytes = 16 << 10

// awaitAgreement waits until both ends have agreed on the copy, or it has ended: a
// session that was never established is not retried.
func (s *step) awaitAgreement() {
	for before := s.proxy.passed.Load(); s.proxy.passed.Load()-before < agreementBytes; {
		select {
		case <-s.client.ended:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

// before gives some destinations the result of an earlier copy, after which the source
// has changed.
func (s *step) before() {
	if s.rng.IntN(3) != 0 {
		return
	}
	s.ended(s.begin("before"), []int{0})
	for range s.rng.IntN(10) {
		s.source.change()
	}
	if s.rng.IntN(2) == 0 {
		must(s.t, os.WriteFile(s.copied()+"/surplus", []byte("surplus"), 0o644))
	}
}

// again runs the same copy once more, which must make both ends equal.
func (s *step) again(source state) {
	if s.server != nil {
		select {
		case <-s.server.ended:
			s.server.checkText()
			s.serve()
		default:
		}
	}
	p := s.begin("again")
	s.ended(p, []int{0})
	there, _ := look(s.t, s.copied())
	temps := s.temps()
	for end := time.Now().Add(launch.Slow(xfer.AbortWait)); len(temps) > 0 && time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		// The interrupted session may end later.
		temps = s.temps()
	}
	extra := union(append(slices.Clone(s.versions), s.was)...)
	if s.has("--delete", "--atomic-dir") {
		extra = nil
	}
	there.equal(s.t, source, extra, s.modes(), s.has("-a", "-rlpt", "-rlt"))
	if s.has("-H") && len(s.was) == 0 && len(s.versions) == 2 {
		there.linkedAs(s.t, source)
	}
	if s.manifests != "" && len(there) == len(source) {
		s.ended(start(s.t, nil, nil, "manifest", "verify", filepath.Join(s.manifests, "again"), s.copied()), []int{0})
	}
	if len(temps) > 0 {
		s.leftovers(temps)
	}
	if s.server != nil {
		s.server.stop()
	}
	if s.t.Failed() {
		s.t.Logf("%s, in the middle of: %s", s.fault.name, s.client)
	}
}

// modes returns the permission bits that the copy keeps: set-ID bits only together with
// their owner, and never to or from a server.
func (s *step) modes() fs.FileMode {
	switch {
	case s.has("-a") && s.server == nil:
		return fs.ModePerm | fs.ModeSetuid
	case s.has("-a", "-rlpt"):
		return fs.ModePerm
	}
	return 0
}

// union returns the entries of several states. If several have a name, the last one
// wins.
func union(states ...state) state {
	all := make(state)
	for _, some := range states {
		for path, e := range some {
			all[path] = e
		}
	}
	return all
}

// temps returns the names of incomplete entries, in the copy and beside it.
func (s *step) temps() (names []string) {
	s.t.Helper()
	_, names = look(s.t, s.copied())
	beside, err := os.ReadDir(s.to)
	must(s.t, err)
	for _, e := range beside {
		if isTemp(e.Name()) {
			names = append(names, "../"+e.Name())
		}
	}
	return names
}

// leftovers handles those of copies that died in places to which the last one wrote
// nothing. gdrcp clean removes them.
func (s *step) leftovers(temps []string) {
	if !strings.Contains(s.fault.name, "killed") && !s.fault.large && !s.fault.exchanges {
		s.t.Errorf("left behind: %q", temps)
	}
	s.ended(start(s.t, nil, nil, "clean", s.to), []int{0})
	if temps = s.temps(); len(temps) > 0 {
		s.t.Errorf("gdrcp clean left behind: %q", temps)
	}
}
