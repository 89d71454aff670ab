package soak

import (
	"encoding/json"
	"slices"
	"strings"

	"gdrcp/tests/launch"
)

// event is an event printed by --json: docs/json-events.md.
type event map[string]any

// events decodes what a copy printed. If the copy was killed, the last line may be
// incomplete.
func (s *step) events(p *process, killed bool) (all []event) {
	s.t.Helper()
	for line := range strings.Lines(p.stdout.String()) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			if !killed {
				s.t.Errorf("an event %q: %v", line, err)
			}
			continue
		}
		all = append(all, e)
	}
	return all
}

// ended waits for a process to end with one of these exit codes, and compares its
// output with its exit code.
func (s *step) ended(p *process, codes []int) {
	s.t.Helper()
	code := p.wait(launch.Slow(patience))
	// A signal may have come before the program handles any.
	tooEarly := code == -1 && slices.Contains(codes, 130) && p.stdout.String() == ""
	if !slices.Contains(codes, code) && !tooEarly {
		s.t.Errorf("exit code %d, want one of %d: %s", code, codes, p)
	}
	p.checkText()
	if code != -1 && slices.Contains(p.args, "--json") {
		s.agrees(p, code)
	}
}

// agrees fails the test if the last event and the exit code contradict each other.
func (s *step) agrees(p *process, code int) {
	s.t.Helper()
	all := s.events(p, false)
	if len(all) == 0 {
		s.t.Errorf("no event, and exit code %d: %s", code, p)
		return
	}
	last := all[len(all)-1]
	number := func(name string) int { n, _ := last[name].(float64); return int(n) }
	lost := number("failed") + number("changed") + number("corrupt") + number("missing")
	ok := false
	switch last["event"] {
	case "error":
		ok = code != 0 && number("exit_code") == code
	case "summary":
		switch code {
		case 0:
			ok = last["verified"] == true && lost == 0
		case 3:
			ok = number("corrupt")+number("missing") == 0 && (lost > 0 || last["not_deleted"] == true || s.failures(all) > 0)
		case 4:
			ok = number("corrupt")+number("missing") > 0 || last["verified"] == false
		}
	}
	if !ok {
		s.t.Errorf("exit code %d, and the last event is %v: %s", code, last, p)
	}
	if code == 0 {
		s.counts(p, last)
	}
}

// failures counts the entries that were reported as failed.
func (s *step) failures(all []event) (n int) {
	for _, e := range all {
		if e["event"] == "file" && e["outcome"] != "copied" && e["outcome"] != "kept" && e["outcome"] != "left_out" || e["event"] == "not_deleted" {
			n++
		}
	}
	return n
}

// counts compares the summary with the source, for the first copy of a source that
// nobody changes.
func (s *step) counts(p *process, summary event) {
	s.t.Helper()
	if len(s.versions) != 1 || len(s.was) > 0 || s.has("-H") || strings.HasPrefix(s.fault.name, "source") {
		return
	}
	var files, bytes, links float64
	for _, e := range s.versions[0] {
		switch e.kind {
		case 'f':
			files++
			bytes += float64(e.size)
		case 'l':
			links++
		}
	}
	if strings.HasPrefix(s.fault.name, "another") {
		return // what the other copy brought is kept
	}
	// A comparison finds that what an earlier attempt brought is unchanged.
	unchanged, _ := summary["unchanged"].(float64)
	if got, _ := summary["files"].(float64); got+unchanged != files || summary["bytes"] != bytes || summary["links"] != links {
		s.t.Errorf("%v files, %v bytes and %v links at the source: %s", files, bytes, links, p)
	}
}

// arrived checks the destination in the middle, or at the end, of a copy against the
// copy's reports: an entry with its final name is what the source or the destination
// had under that name, and an entry reported as copied is what the source has.
func (s *step) arrived(p *process) {
	s.t.Helper()
	there, _ := look(s.t, s.copied())
	moved, _ := look(s.t, s.copied()+".renamed")
	for _, all := range []state{there, moved} {
		for path, e := range all {
			if e.kind != 'd' && !s.sourceHad(path, e) && !s.isBeginning(path, e) && !e.is(s.was[path]) {
				s.t.Errorf("%q has its final name and is %v, which nobody had: %s", path, e, p)
			}
		}
	}
	if s.whole {
		s.inOneStep(there, p)
		return
	}
	if s.gone {
		return
	}
	there = union(moved, there) // the copy may have started after the rename
	for _, e := range s.events(p, true) {
		path, _ := e["path"].(string)
		// A name that is not text is escaped in events, and "." is the top.
		if e["event"] != "file" || e["outcome"] != "copied" || path == "." || strings.ContainsRune(path, '�') {
			continue
		}
		if got, ok := there[path]; !ok {
			s.t.Errorf("%q was told as copied, and is not there: %s", path, p)
		} else if grown := e["text"] != nil || s.has("-H"); got.kind != 'd' && !s.sourceHad(path, got) && !(grown && s.isBeginning(path, got)) {
			s.t.Errorf("%q was told as copied, and is %v: %s", path, got, p)
		}
	}
}

// inOneStep fails the test if the tree at the destination is neither the former one nor
// a complete new one.
func (s *step) inOneStep(there state, p *process) {
	s.t.Helper()
	former := len(there) == len(s.was)
	for path, e := range there {
		former = former && e.is(s.was[path])
	}
	if former && p.cmd.ProcessState.ExitCode() != 0 {
		return
	}
	for path, e := range there {
		if !s.sourceHad(path, e) && !s.isBeginning(path, e) {
			s.t.Errorf("%q is %v in a tree that appears in one step: %s", path, e, p)
		}
	}
	sizes := func(v state) bool { return len(v) == len(there) }
	if code := p.cmd.ProcessState.ExitCode(); code == 3 || code == 4 || !slices.ContainsFunc(s.versions, sizes) {
		s.t.Errorf("exit code %d, and the tree has %d entries, the former one %d: %s", code, len(there), len(s.was), p)
	}
}

// sourceHad reports whether the source had that entry under this path at some time.
func (s *step) sourceHad(path string, e entry) bool {
	return slices.ContainsFunc(s.versions, func(v state) bool {
		had, ok := v[path]
		return ok && e.is(had)
	})
}

// isBeginning reports whether that is the beginning of a file that the source had under
// this path, at a size that the file had earlier.
func (s *step) isBeginning(path string, e entry) bool {
	return e.kind == 'f' && slices.ContainsFunc(s.versions, func(v state) bool {
		sum, ok := v[path].begins[e.size]
		return ok && sum == e.sum
	})
}
