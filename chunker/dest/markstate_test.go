package dest

import (
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
	"gdrcp/internal/treetest"
)

// TestMarkStateProves: each doubt about a marked file.
func TestMarkStateProves(t *testing.T) {
	const marked, lastNs = 8192, 1000*int64(time.Second) + 5e6
	was := markState{ctimeNs: lastNs - 2e9, birthNs: 7, blocks: 20}
	for name, c := range map[string]struct {
		change func(was, now *markState, bytes, lastNs *int64)
		want   bool
	}{
		"a plain kill":      {func(_, _ *markState, _, _ *int64) {}, true},
		"a write in flight": {func(_, now *markState, _, last *int64) { now.ctimeNs = *last + int64(latestWrite) }, true},
		"a later change":    {func(_, now *markState, _, last *int64) { now.ctimeNs = *last + int64(latestWrite) + 1 }, false},
		"a write in flight to a slow disk": {func(was, now *markState, _, last *int64) {
			was.pause, now.ctimeNs = 20*latestWrite, *last+int64(20*latestWrite)
		}, true},
		"a change after a long pause": {func(was, now *markState, _, last *int64) {
			was.pause, now.ctimeNs = time.Hour, *last+int64(mostPause)+1
		}, false},
		"a change long ago":       {func(was, now *markState, _, _ *int64) { now.ctimeNs = was.ctimeNs - 1 }, false},
		"space allocated ahead":   {func(was, now *markState, _, _ *int64) { was.blocks, now.blocks = 1000, marked/512 }, true},
		"a hole":                  {func(_, now *markState, _, _ *int64) { now.blocks = marked/512 - 1 }, false},
		"a sparse file":           {func(was, now *markState, _, _ *int64) { was.blocks, now.blocks = 2, 2 }, true},
		"a hole in a sparse file": {func(was, now *markState, _, _ *int64) { was.blocks, now.blocks = 2, 1 }, false},
		"a shorter file":          {func(_, _ *markState, bytes, _ *int64) { *bytes = marked - 1 }, false},
		"another file":            {func(_, now *markState, _, _ *int64) { now.birthNs++ }, false},
		"no birth time":           {func(was, now *markState, _, _ *int64) { was.birthNs, now.birthNs = 0, 0 }, false},
		"an older journal":        {func(was, _ *markState, _, _ *int64) { *was = markState{} }, false},
		"times of whole seconds": {func(was, now *markState, _, last *int64) {
			was.ctimeNs, now.ctimeNs, *last = 998e9, 1000e9, 1000e9
		}, false},
	} {
		then, now, bytes, last := was, was, int64(marked), int64(lastNs)
		now.ctimeNs = last
		c.change(&then, &now, &bytes, &last)
		if got := then.markRecord(2).markState(); got != then {
			t.Errorf("%s: %+v, recorded as %+v", name, got, then)
		}
		if got := then.proves(now, bytes, marked, last); got != c.want {
			t.Errorf("%s: proved %v", name, got)
		}
	}
}

// TestMarkedPiecesThatChanged: what another program does to a partial file before its mark does
// not get into the copy, and costs nothing more than it has to. After a plain kill nothing
// before the mark is read.
func TestMarkedPiecesThatChanged(t *testing.T) {
	const marked, pieces = 5, 7
	writeAt := func(off int64) func(*os.File) error {
		return func(f *os.File) error {
			_, err := f.WriteAt(make([]byte, 4096), off)
			return err
		}
	}
	for name, c := range map[string]struct {
		change func(f *os.File) error
		end    func(s *Sink, f *partialFile, temp *Temp) error // nil: a kill
		want   uint64
		read   int // pieces, at the least
	}{
		"a plain kill": {nil, nil, pieces, pieces - marked},
		"an older journal": {nil, func(_ *Sink, _ *partialFile, temp *Temp) error {
			temp.journal.write(&record{kind: recordMark, first: marked})
			return temp.close()
		}, pieces, pieces},
		"interrupted": {nil, func(_ *Sink, _ *partialFile, temp *Temp) error { return temp.Keep() }, pieces, pieces - marked},
		"killed again": {nil, func(s *Sink, f *partialFile, temp *Temp) error {
			if err := temp.close(); err != nil {
				return err
			}
			again, _, err := s.Resume(f.entry, nil, &f.partial)
			if err != nil {
				return err
			}
			return again.close()
		}, pieces, 0},
		"overwritten": {writeAt(2 * partialPiece), nil, 2, 3},
		"a hole": {func(f *os.File) error {
			return unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 3*partialPiece, 4096)
		}, nil, 3, 4},
		"shorter than its mark": {func(f *os.File) error { return f.Truncate(2*partialPiece + 1) }, nil, 2, 2},
		"shorter, and longer again": {func(f *os.File) error {
			if err := f.Truncate(2*partialPiece + 1); err != nil {
				return err
			}
			return f.Truncate(pieces * partialPiece)
		}, nil, 2, 3},
		"empty": {func(f *os.File) error { return f.Truncate(0) }, nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			treetest.NoLeaks(t)
			dir := t.TempDir()
			f := newPartialFile("f", 8)
			s := sinkInto(t, dir, Options{})
			temp, err := s.CreatePartial(f.entry, nil, &f.partial)
			if err != nil {
				t.Fatal(err)
			}
			f.write(t, temp, 0, 1, 2, 3, 4)
			if err := temp.Mark(); err != nil {
				t.Fatal(err)
			}
			f.write(t, temp, 5, 6)
			path, journal := thePartial(t, dir), theJournal(t, dir)
			if c.end == nil {
				c.end = func(_ *Sink, _ *partialFile, temp *Temp) error { return temp.close() }
			}
			if err := c.end(s, f, temp); err != nil {
				t.Fatal(err)
			}
			if c.change != nil {
				changeLate(t, path, journal, max(temp.journal.pause, latestWrite), c.change)
			}
			if state := stateOfPath(t, path); c.change == nil && (state.birthNs == 0 || state.ctimeNs%int64(time.Second) == 0) {
				c.read = pieces // on this file system there is no proof
			}
			read := 0
			s.Watch(Watch{Step: func() { read++ }})
			if got := f.goOn(t, s, &f.partial); got != c.want {
				t.Errorf("%d pieces count, not %d", got, c.want)
			}
			if read < c.read || c.change == nil && read != c.read {
				t.Errorf("%d pieces were read, not %d", read, c.read)
			}
			f.wantPublished(t, dir)
		})
	}
}

// changeLate changes a partial file, again until the change is later than a write of the copy
// may be.
func changeLate(t *testing.T, path, journal string, latest time.Duration, change func(*os.File) error) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var last unix.Stat_t
	if err := unix.Stat(journal, &last); err != nil {
		t.Fatal(err)
	}
	for stateOf(int(f.Fd())).ctimeNs <= fsys.Nanoseconds(last.Mtim)+int64(min(latest, mostPause)) {
		if err := change(f); err != nil {
			t.Fatal(err)
		}
	}
}

func stateOfPath(t *testing.T, path string) markState {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return stateOf(int(f.Fd()))
}
