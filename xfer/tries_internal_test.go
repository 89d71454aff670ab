package xfer

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Only a lost connection, and a server that cannot be reached for now, are reasons to try again. A
// loss is also one if only the peer sees it, and reports it.
func TestWhatIsTriedAgain(t *testing.T) {
	lost := &fault.LostError{Peer: "peer", Err: &rdma.OpError{Op: "receive", Err: errors.New("retry count exceeded")}}
	for _, c := range []struct {
		err           error
		lost, reached bool // whether it counts in an attempt with an agreement, and in one without
	}{
		{lost, true, true},
		{fmt.Errorf("join: %w", rdma.ErrDisconnected), true, true},
		{ErrPeerSilent, true, true},
		{&RemoteError{Class: ClassStopped, Text: "the server is stopping"}, true, true},
		{&RemoteError{Class: ClassError, Text: "the key is not valid any more"}, false, false},
		{&RemoteError{Class: ClassIntegrity}, false, false},
		{errors.Join(lost, fileset.ErrNoSpace), false, false},
		{errors.Join(lost, ErrIntegrity), false, false},
		{&fault.LostError{Peer: "peer", Err: link.ErrForged}, true, true},
		{&fault.LostError{Peer: "peer", Err: rdma.ErrAccess}, true, true}, // the kernel of a process that was killed ends its regions first
		{ErrStalled, false, false},
		{ErrUsage, false, false},
		{ErrProtocol, false, false},
		{errors.New("read a: input/output error"), false, false},
		{&rdma.OpError{Op: "connect", Err: errors.New("connection refused")}, false, true},
		{&RefusedError{Code: rdma.RejectBusy}, false, true},
		{&RefusedError{Code: rdma.RejectVersion}, false, false},
		{&rdma.RejectedError{Code: rdma.RejectShutdown}, false, true},
		{&rdma.RejectedError{Code: rdma.RejectResources}, false, false},
		{fmt.Errorf("authenticate: %w", trust.ErrRefused), false, false},
	} {
		never := NewTries()
		first, later := NewTries(), NewTries()
		first.stood, first.place, first.connected = true, true, true
		later.stood, later.place = true, true
		if got := first.MayGoOn(c.err); got != c.lost {
			t.Errorf("%v, after both ends had agreed: %v", c.err, got)
		}
		if got := first.MayGoOn(&RemoteError{Class: Classify(c.err)}); got != c.lost {
			t.Errorf("%v, which the peer tells: %v", c.err, got)
		}
		if got := later.MayGoOn(c.err); got != c.reached {
			t.Errorf("%v, before both ends have agreed again: %v", c.err, got)
		}
		if never.MayGoOn(c.err) {
			t.Errorf("%v, in a copy that never began: tried again", c.err)
		}
	}
}

// tryOf begins the results of an attempt with those flags.
func tryOf(t *testing.T, tries *Tries, flags uint64) *copyResults {
	t.Helper()
	a, err := newCopyResults(&wire.Terms{Hash: manifest.XXH3, PieceBytes: 1 << 20, Flags: flags}, &Options{Tally: &stat.Counters{}, Tries: tries})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func settled(t *testing.T, a *copyResults, path string, x *wire.Exception) {
	t.Helper()
	b := &entryState{AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Path: path, Type: manifest.File, Size: 3, Mode: 0o600}}}
	if err := a.lookup(b); err != nil {
		t.Fatal(err)
	}
	if err := a.book(b, x); err != nil {
		t.Fatal(err)
	}
}

func refused(t *testing.T, a *copyResults, path string, o Outcome) {
	t.Helper()
	if err := a.bookRefused(path, &wire.Exception{Entry: noEntry, Outcome: o}); err != nil {
		t.Fatal(err)
	}
}

// The numbers and the roots of two attempts are those of one without an interruption.
func TestNumbersOfAllTries(t *testing.T) {
	failed := &wire.Exception{Outcome: Failed}
	once := tryOf(t, nil, 0)
	for _, path := range []string{"a", "c", "e", "g"} {
		settled(t, once, path, nil)
	}
	want := once.finish()

	tries := NewTries()
	first := tryOf(t, tries, wire.FlagTimes|wire.FlagSameStays)
	refused(t, first, "0", Skipped)
	settled(t, first, "a", nil)
	settled(t, first, "b", failed)
	settled(t, first, "c", nil)
	refused(t, first, "d", Skipped)
	refused(t, first, "f", Failed) // after what is settled: the next attempt finds it again
	tries.cutOff(first, nil)
	tally := &stat.Counters{}
	if n := tries.Again(tally); n != 1 || tally.Read() != (Progress{Bytes: 6, Files: 2, TotalBytes: 6, Tries: 1}) {
		t.Errorf("retry %d begins with %+v", n, tally.Read())
	}
	second := tryOf(t, tries, 0)
	terms := &wire.Terms{}
	tries.goesOn(terms)
	if terms.Settled != "c" {
		t.Errorf("settled up to %q", terms.Settled)
	}
	refused(t, second, "0", Skipped)
	for _, path := range []string{"a", "b", "c"} {
		settled(t, second, path, &wire.Exception{Outcome: Kept})
	}
	refused(t, second, "d", Skipped)
	settled(t, second, "e", nil)
	refused(t, second, "f", Failed)
	settled(t, second, "g", nil)
	sum := second.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began)
	if sum.Files != 4 || sum.Bytes != 12 || sum.Skipped != 2 || sum.Failed != 2 || sum.Kept != 0 || sum.Retries != 1 {
		t.Errorf("the summary of two tries: %+v", sum)
	}
	if sum.Content != want.Content || sum.Meta != want.Meta {
		t.Error("the roots of two tries are not those of one")
	}
}

// The progress of a later attempt begins with all files of the earlier ones, including those that
// existed already.
func TestFilesOfEarlierTries(t *testing.T) {
	tries := NewTries()
	tries.done = bookings{unchanged: 3, trusted: 5}
	tries.done.counts[Copied], tries.done.counts[Failed] = 2, 7
	tally := &stat.Counters{}
	tries.Again(tally)
	if got := tally.Read().Files; got != 10 {
		t.Errorf("it begins with %d files, want 10", got)
	}
}

// A report about an entry after the settled ones is not repeated, though the entry counts in the
// attempt that meets it. A new report about it is made.
func TestToldOnce(t *testing.T) {
	var told []string
	listen := func(a *copyResults) *copyResults {
		a.report = func(e Event) { told = append(told, e.Path+": "+e.Text) }
		return a
	}
	tries := NewTries()
	tell := func(a *copyResults, path, text string) {
		t.Helper()
		if err := a.bookRefused(path, &wire.Exception{Entry: noEntry, Outcome: Failed, Text: text}); err != nil {
			t.Fatal(err)
		}
	}
	first := listen(tryOf(t, tries, 0))
	tell(first, "a", "is a FIFO")
	tell(first, "b", "input/output error")
	tries.cutOff(first, nil)
	tries.Again(&stat.Counters{})
	second := listen(tryOf(t, tries, 0))
	tell(second, "a", "is a FIFO")
	tell(second, "b", "permission denied")
	tell(second, "b", "permission denied")
	if want := []string{"a: is a FIFO", "b: input/output error", "b: permission denied"}; !slices.Equal(told, want) {
		t.Errorf("told: %q", told)
	}
	if sum := second.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began); sum.Failed != 3 {
		t.Errorf("%d failed in the last try, in which three were met", sum.Failed)
	}
	for i := range toldMax + 10 {
		tell(second, fmt.Sprint(i), "")
	}
	if len(tries.told) > toldMax {
		t.Errorf("%d are held", len(tries.told))
	}
}

// A directory or link that the sink cannot make is made again in each attempt. It fails once, and
// is reported once; one that fails for the first time in a later attempt counts from then on.
func TestWhatNoTryCanMake(t *testing.T) {
	for _, typ := range []manifest.EntryType{manifest.Dir, manifest.Symlink} {
		var told []string
		tries := NewTries()
		var last *copyResults
		for n, texts := range [][2]string{{"in the way", ""}, {"in the way", ""}, {"not permitted", "not permitted"}, {"", "in the way"}} {
			last = tryOf(t, tries, wire.FlagWhole)
			last.report = func(e Event) { told = append(told, e.Path+": "+e.Text) }
			for i, path := range []string{"a", "b"} {
				b := &entryState{AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Path: path, Type: typ, Mode: 0o755, Target: "x"}}}
				if typ == manifest.Dir {
					b.Target = ""
				}
				var x *wire.Exception
				if texts[i] != "" {
					x = &wire.Exception{Outcome: Failed, Text: texts[i]}
				}
				if err := last.book(b, x); err != nil {
					t.Fatal(err)
				}
			}
			want := int64(1)
			if n >= 2 {
				want = 2
			}
			if got := last.failures(); got != want {
				t.Errorf("try %d: %d failed, want %d", n, got, want)
			}
			tries.cutOff(last, nil)
			tries.Again(&stat.Counters{})
			if !tries.failedBefore(&wire.Terms{Flags: wire.FlagWhole}) {
				t.Errorf("after try %d nothing has failed", n)
			}
		}
		told = slices.DeleteFunc(told, func(s string) bool { return s == "b: " }) // it was made at first
		if want := []string{"a: in the way", "b: not permitted"}; !slices.Equal(told, want) {
			t.Errorf("told: %q, want %q", told, want)
		}
	}
}

// A failure after everything else has ended is met and counted by each attempt, and reported by
// one.
func TestWhatNoTryCanEnd(t *testing.T) {
	tries, told := NewTries(), 0
	for range 2 {
		a := tryOf(t, tries, wire.FlagDelete)
		a.report = func(Event) { told++ }
		a.bookUnsettled("d", "set time: operation not permitted", OtherEnd)
		a.bookRemoval(wire.DeletedFailed, "old", "unlink: operation not permitted")
		if a.failures() != 2 || told != 2 {
			t.Errorf("%d failures, told %d times", a.failures(), told)
		}
		tries.cutOff(a, nil)
		tries.Again(&stat.Counters{})
	}
}

// A later attempt of a dry run finds again what would be deleted, in the same order, and counts it
// from zero. It reports what is new, even if the destination has changed meanwhile. What has been
// deleted no later attempt finds.
func TestDeletionsOfAllTries(t *testing.T) {
	var told []string
	tries := NewTries()
	for _, c := range []struct {
		met, told []string
	}{
		{[]string{"a", "b", "c"}, []string{"a", "b", "c"}},
		{[]string{"a"}, nil},
		{[]string{"a", "c", "d"}, []string{"d"}},
		{[]string{"a", "c", "d", "e"}, []string{"e"}},
	} {
		a := tryOf(t, tries, wire.FlagDryRun|wire.FlagDelete)
		told, a.report = nil, func(e Event) { told = append(told, e.Path) }
		for _, path := range c.met {
			a.bookRemoval(wire.DeletedFile, path, "")
		}
		if !slices.Equal(told, c.told) || a.deletes.deleted != int64(len(c.met)) {
			t.Errorf("of %q %d are counted, told are %q", c.met, a.deletes.deleted, told)
		}
		tries.cutOff(a, nil)
		tries.Again(&stat.Counters{})
	}
	for _, flag := range []uint64{0, wire.FlagHardLinks} {
		tries := NewTries()
		for n := range int64(3) {
			a := tryOf(t, tries, wire.FlagDelete|flag)
			a.bookRemoval(wire.DeletedFile, fmt.Sprint(n), "")
			if a.deletes.deleted != n+1 {
				t.Errorf("flag %#x: %d deleted, want %d", flag, a.deletes.deleted, n+1)
			}
			tries.cutOff(a, nil)
			tries.Again(&stat.Counters{})
		}
	}
}

// Without fsync, and with hard links, a later attempt counts everything again. The quick check
// accepts nothing that may not be on the disk, as without fsync and with in place.
func TestTriesThatCountAnew(t *testing.T) {
	for _, flag := range []uint64{wire.FlagNoFsync, wire.FlagHardLinks} {
		tries := NewTries()
		first := tryOf(t, tries, flag)
		settled(t, first, "a", nil)
		tries.cutOff(first, nil)
		tries.Again(&stat.Counters{})
		terms := &wire.Terms{Flags: flag | wire.FlagTimes | wire.FlagSameStays}
		tries.goesOn(terms)
		if terms.Settled != "" || terms.Has(wire.FlagSameStays) != (flag != wire.FlagNoFsync) {
			t.Errorf("flag %#x: settled up to %q, flags %#x", flag, terms.Settled, terms.Flags)
		}
		inPlace := &wire.Terms{Flags: flag | wire.FlagInPlace | wire.FlagTimes | wire.FlagSameStays}
		if tries.goesOn(inPlace); inPlace.Has(wire.FlagSameStays) {
			t.Errorf("in place: flags %#x", inPlace.Flags)
		}
		second := tryOf(t, tries, flag)
		settled(t, second, "a", nil)
		if sum := second.summary(&stat.Counters{}, &wire.Terms{}, Link{}, tries.began); sum.Files != 1 || sum.Bytes != 3 {
			t.Errorf("flag %#x: %+v", flag, sum)
		}
	}
}

// Files that a later attempt may keep by size, name or age must be complete and on the disk.
func TestMayTryAgain(t *testing.T) {
	for name, c := range map[string]struct {
		o    Options
		want bool
	}{
		"plain":             {Options{}, true},
		"update":            {Options{Update: true}, true},
		"in place":          {Options{InPlace: true}, true},
		"in place, newer":   {Options{InPlace: true, Update: true}, false},
		"in place, by size": {Options{InPlace: true, SizeOnly: true}, false},
		"in place, longer":  {Options{InPlace: true, AppendVerify: true}, false},
		"not synced, newer": {Options{NoFsync: true, Update: true}, false},
		"a manifest":        {Options{WriteManifest: "m"}, false},
		"a bound":           {Options{Delete: true, MaxDelete: 1}, false},
	} {
		if got := c.o.MayTryAgain(); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// A file that was compared, and kept because a newer one came meanwhile, counts as kept. Only a dry
// run reports a file that is the same in this way.
func TestKeptAfterItWasCompared(t *testing.T) {
	for flags, unchanged := range map[uint64]int64{0: 0, wire.FlagDryRun: 1} {
		a := tryOf(t, nil, flags)
		b := &entryState{AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Path: "a", Type: manifest.File, Size: 3}}}
		b.comparison.pieces = 1
		if err := a.book(b, &wire.Exception{Outcome: Kept}); err != nil {
			t.Fatal(err)
		}
		if a.booked.unchanged != unchanged || a.booked.counts[Kept] != 1-unchanged {
			t.Errorf("flags %#x: %d the same, %d kept", flags, a.booked.unchanged, a.booked.counts[Kept])
		}
	}
}

// A tree of which an earlier attempt could not copy something gets no name in a later one, even if
// that was never announced.
func TestFailedBefore(t *testing.T) {
	for name, c := range map[string]struct {
		fail func(a *copyResults)
		want bool
	}{
		"nothing":    {func(*copyResults) {}, false},
		"left out":   {func(a *copyResults) { refused(t, a, "a", Skipped) }, false},
		"unreadable": {func(a *copyResults) { refused(t, a, "a", Failed) }, true},
		"vanished":   {func(a *copyResults) { refused(t, a, "a", Changed) }, true},
		"not copied": {func(a *copyResults) { settled(t, a, "a", &wire.Exception{Outcome: Failed}) }, true},
	} {
		tries := NewTries()
		first := tryOf(t, tries, wire.FlagWhole)
		c.fail(first)
		settled(t, first, "b", nil)
		tries.cutOff(first, nil)
		tries.Again(&stat.Counters{})
		terms := &wire.Terms{Flags: wire.FlagWhole}
		tries.goesOn(terms)
		if got := tries.failedBefore(terms); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// TestDirectoryThatFailsInALaterTry: an attempt was cut off in the middle of a directory. The end
// of its entry says nothing about the rest of its contents, which the next attempt cannot read.
func TestDirectoryThatFailsInALaterTry(t *testing.T) {
	for name, last := range map[string]string{"in the directory": "d/a", "behind its entry": "d", "at a name before its contents": "d-x"} {
		t.Run(name, func(t *testing.T) {
			begun := func(a *copyResults) {
				d := &entryState{AnnouncedEntry: wire.AnnouncedEntry{Entry: manifest.Entry{Path: "d", Type: manifest.Dir, Mode: 0o700}}}
				if err := a.lookup(d); err != nil {
					t.Fatal(err)
				}
				if err := a.book(d, nil); err != nil {
					t.Fatal(err)
				}
			}
			tries := NewTries()
			first := tryOf(t, tries, 0)
			begun(first)
			if last != "d" {
				settled(t, first, last, nil)
			}
			tries.cutOff(first, nil)
			tries.Again(&stat.Counters{})
			second := tryOf(t, tries, 0)
			begun(second)
			refused(t, second, "d", Failed) // "open directory", or "read directory": the rest of it is not copied
			if n := second.failures(); n != 1 {
				t.Errorf("%d entries failed, and d could not be read", n)
			}
		})
	}
}

// A different way for the next attempt is no reason for one more after it: an attempt may end
// before it connects, for example when its source or destination is gone.
func TestNextWayIsOfOneAttempt(t *testing.T) {
	tries := NewTries()
	tries.learned.next = "TCP"
	if !tries.MayGoOn(ErrUsage) {
		t.Fatal("the attempt over TCP was not to be made")
	}
	tries.Again(new(Tally))
	if next := tries.NextWay(); next != "" || tries.MayGoOn(ErrUsage) {
		t.Errorf("after an attempt that did not connect, the next is over %q", next)
	}
}
