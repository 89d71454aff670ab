package soak

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"gdrcp/internal/fusetest"
)

// These faults once lost data, or delivered data that differed from the source's, silently.

// critical are the faults of this file. TestCritical runs each of them.
var critical = []fault{
	{name: "partial file changed unseen, then --manifest", codes: []int{-1, 0, 1}, large: true, fits: goesByManifest, prepare: func(s *step) {
		s.source.file(s.source.fresh(), 96*mib) // which an earlier copy cannot have brought
	}, strike: func(s *step) func() {
		damage := killed(s, overwriteUnseen)
		return func() {
			damage()
			file := filepath.Join(s.t.TempDir(), "manifest")
			s.ended(start(s.t, nil, nil, "manifest", "create", "-o", file, s.source.dir), []int{0})
			s.options = append(s.options, "--manifest", file)
		}
	}},
	{name: "names that the destination takes for the same", codes: []int{3}, fits: inPlace, mount: foldNames, prepare: addTwins, strike: func(s *step) func() {
		return func() { s.removeFailed() }
	}},
	{name: "foreign directory replaced", codes: []int{1}, fits: func(s *step) bool { return s.whole }, prepare: makeForeign, strike: func(s *step) func() {
		return func() { s.options = append(s.options, "--force-replace") }
	}},
	{name: "source rewritten within a second", codes: []int{0, 3}, early: true, fits: func(s *step) bool { return !s.has("--copy-growing") }, mount: wholeSeconds, prepare: addHot, strike: rewriteHot},
}

// goesByManifest reports whether the copy is a push that can be resumed with --manifest, and only
// the manifest has the server read back what arrived.
func goesByManifest(s *step) bool {
	return s.push && !s.local && !s.whole && !s.has("--no-resume", "--recheck", "--hash", "--copy-growing") && s.manifests == ""
}

// overwriteUnseen changes a piece that counts as arrived, and then the journal's time, as if the
// change preceded the journal's last record.
func overwriteUnseen(s *step, f *os.File, _ int64) error {
	if _, err := f.WriteAt([]byte("other"), s.rng.Int64N(mib-8)); err != nil {
		return err
	}
	now := time.Now()
	journals, err := filepath.Glob(filepath.Join(globQuoted(filepath.Dir(f.Name())), ".gdrcp-journal-*"))
	for _, journal := range journals {
		if err == nil {
			err = os.Chtimes(journal, now, now)
		}
	}
	return err
}

// globQuoted is a pattern that only the path itself matches.
func globQuoted(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

// foldNames mounts at the destination a file system that ignores case in names.
func foldNames(s *step) {
	s.to = fusetest.MountFolding(s.t, s.to, fusetest.FoldASCII, s.has("-H") || s.rng.IntN(2) == 0)
}

// addTwins adds entries whose names differ only in case.
func addTwins(s *step) {
	for i := range 2 + s.rng.IntN(5) {
		in := s.source.dirs[s.rng.IntN(len(s.source.dirs))]
		if !utf8.ValidString(in) { // an event escapes that name
			in = "."
		}
		for _, name := range []string{fmt.Sprintf("Twin-%d", i), fmt.Sprintf("twin-%d", i)} {
			switch path := filepath.Join(in, name); s.rng.IntN(5) {
			case 0:
				must(s.t, os.Symlink(name, s.source.at(path)))
			case 1:
				must(s.t, os.Mkdir(s.source.at(path), 0o755))
				s.source.file(filepath.Join(path, "same"), 1+s.rng.Int64N(1000))
			default:
				s.source.file(path, s.rng.Int64N(2*mib))
			}
		}
	}
}

// removeFailed removes from the source what the copy reported as failed. Nothing else may be
// missing at the destination.
func (s *step) removeFailed() {
	for _, e := range s.events(s.client, false) {
		if path, _ := e["path"].(string); e["event"] == "file" && e["outcome"] == "failed" {
			must(s.t, os.RemoveAll(s.source.at(path)))
		}
	}
	now, _ := look(s.t, s.source.dir)
	there, _ := look(s.t, s.copied())
	there.equal(s.t, now, union(append(slices.Clone(s.versions), s.was)...), s.modes(), false)
}

// makeForeign creates, under the name of the copy, a directory that no copy made.
func makeForeign(s *step) {
	s.options = slices.DeleteFunc(s.options, func(o string) bool { return o == "--force-replace" })
	must(s.t, os.RemoveAll(s.copied()))
	must(s.t, os.Mkdir(s.copied(), 0o755))
	foreign := newTree(s.t, s.rng, s.copied())
	foreign.file("foreign", 1000)
}

// wholeSeconds mounts at the source a file system that stores times in whole seconds.
func wholeSeconds(s *step) {
	s.from = fusetest.MountSeconds(s.t, s.from)
	s.source.dir = s.from + "/tree"
}

// hot are the names of the files that rewriteHot rewrites.
var hot = []string{"hot-1", "hot-2", "hot-3"}

func addHot(s *step) {
	for _, name := range hot {
		s.source.file(name, 4*mib)
	}
}

// rewriteHot changes files for some seconds, alternately at their beginnings and ends.
func rewriteHot(s *step) func() {
	for n, end := 0, time.Now().Add(3*time.Second); time.Now().Before(end); n++ {
		for _, name := range hot {
			path := s.source.at(name)
			f, err := os.OpenFile(path, os.O_WRONLY, 0)
			must(s.t, err)
			_, err = f.WriteAt(fmt.Appendf(nil, "%08d", n), int64(n%2)*(4*mib-8))
			must(s.t, err)
			must(s.t, f.Close())
			v := maps.Clone(s.versions[len(s.versions)-1])
			v[name], err = entryAt(path)
			must(s.t, err)
			s.versions = append(s.versions, v)
		}
	}
	return nil
}
