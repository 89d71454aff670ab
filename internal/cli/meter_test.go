package cli

import (
	"strings"
	"testing"
	"time"

	"gdrcp/xfer"
)

// The rate is that of the last seconds. The clock runs from the beginning, even when
// the total becomes known.
func TestMeter(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(1000, 0)
	m := newMeter(start)
	var r reading
	for tenth := range 201 { // 20 s at 10 MiB/s; the total is known only at the end
		at := start.Add(time.Duration(tenth) * 100 * time.Millisecond)
		r = m.read(xfer.Progress{Bytes: int64(tenth) * mib, MovedBytes: int64(tenth) * mib, Files: 3, TotalKnown: tenth > 100, TotalBytes: 400 * mib}, at)
		if tenth > 0 && (r.bytesPerSecond < 9.9*mib || r.bytesPerSecond > 10.1*mib) {
			t.Fatalf("after %v: %.1f MiB/s", r.elapsed, r.bytesPerSecond/mib)
		}
		if r.elapsed != at.Sub(start) {
			t.Fatalf("the clock shows %v after %v", r.elapsed, at.Sub(start))
		}
	}
	if left, ok := r.left(); !ok || left.Round(time.Second) != 20*time.Second {
		t.Errorf("%v left, %v; want 20 s", left, ok)
	}
	for second := range 6 {
		r = m.read(r.Progress, start.Add(20*time.Second+time.Duration(second+1)*time.Second))
	}
	if _, ok := r.left(); r.bytesPerSecond != 0 || ok {
		t.Errorf("a copy that stands still has a rate of %.0f", r.bytesPerSecond)
	}
	if len(m.recent) > 60 {
		t.Errorf("%d samples are kept", len(m.recent))
	}
}

// The rate of a later attempt includes neither the time without a connection nor data
// that had already arrived.
func TestMeterOfALaterTry(t *testing.T) {
	const mib = 1 << 20
	start := time.Unix(1000, 0)
	m := newMeter(start)
	p := xfer.Progress{TotalBytes: 400 * mib, TotalKnown: true}
	at := func(second int, moved, has int64) reading {
		p.MovedBytes, p.Bytes = moved*mib, has*mib
		return m.read(p, start.Add(time.Duration(second)*time.Second))
	}
	at(1, 50, 50)
	at(2, 100, 100)
	p.Tries++
	if r := at(20, 100, 100); r.bytesPerSecond != 0 {
		t.Errorf("a try that begins has a rate of %.0f", r.bytesPerSecond)
	}
	for second := range 3 {
		r := at(21+second, 110+10*int64(second), 120+10*int64(second))
		if r.bytesPerSecond != 10*mib {
			t.Errorf("%d s after the copy goes on it has a rate of %.1f MiB/s", second+1, r.bytesPerSecond/mib)
		}
	}
}

func TestProgressLine(t *testing.T) {
	const mib = 1 << 20
	known := reading{xfer.Progress{Bytes: 25 * mib, Files: 12, TotalBytes: 100 * mib, TotalKnown: true}, 3 * time.Second, 9.4 * mib}
	searching := reading{xfer.Progress{Bytes: 25 * mib, Files: 1, TotalBytes: 50 * mib}, 3723 * time.Second, 9.4 * mib}
	for _, c := range []struct {
		r     reading
		cells int
		want  string
	}{
		{known, 3, ""},
		{known, 19, " 25%  9.4 MiB/s"},
		{known, 28, " 25%  9.4 MiB/s  0:07 left"},
		{known, 29, "9.4 MiB/s  25% [===         ]"},
		{known, 39, "9.4 MiB/s  0:07 left  25% [==         ]"},
		{known, 79, "9.4 MiB/s  0:07 left  25.0 MiB of 100.0 MiB  12 files  25% [====              ]"},
		{searching, 19, "25.0 MiB  9.4 MiB/s"},
		{searching, 39, "25.0 MiB  9.4 MiB/s  1 file"},
		{searching, 199, "25.0 MiB  9.4 MiB/s  1 file  1:02:03 so far"},
		{reading{Progress: xfer.Progress{Bytes: -mib, TotalBytes: mib, TotalKnown: true}}, 79, "0 B/s  -1048576 B of 1.0 MiB  0 files  0:00 so far   0% [                     ]"},
		{reading{Progress: xfer.Progress{Bytes: 2 * mib, TotalBytes: mib, TotalKnown: true}}, 39, "0 B/s 100% [==========================]"},
		{reading{Progress: xfer.Progress{TotalKnown: true}}, 79, "0 B  0 B/s  0 files  0:00 so far"},
		{reading{Progress: xfer.Progress{Bytes: 7, TotalBytes: 1 << 60, TotalKnown: true}, bytesPerSecond: 1}, 30, "1 B/s   0% [                 ]"},
	} {
		if got := c.r.line(c.cells); got != c.want {
			t.Errorf("in %d cells: %q, want %q", c.cells, got, c.want)
		}
	}
	for cells := range 250 {
		if n := len(known.line(cells)); n > cells {
			t.Errorf("%d cells in a room of %d", n, cells)
		}
	}
	if got, want := known.line(159), " 25% ["+strings.Repeat("=", 21)+strings.Repeat(" ", 64)+"]"; !strings.HasSuffix(got, want) || len(got) != 159 {
		t.Errorf("a quarter of the bar: %q", got)
	}
}
