package cli

import (
	"fmt"
	"strings"
	"time"

	"gdrcp/xfer"
)

// rateWindow is the time over which a rate is measured: long enough for a steady
// figure, and short enough to show that a copy has stopped moving.
const rateWindow = 5 * time.Second

// reading is how far a copy has come.
type reading struct {
	xfer.Progress
	elapsed time.Duration // since the copy began
	// bytesPerSecond is the rate over the last rateWindow; 0 before there is a rate.
	bytesPerSecond float64
}

// meter makes readings of a tally's progress. Its clock starts once.
type meter struct {
	began  time.Time
	recent []sample // of the last rateWindow, and one that is older
	tries  int64    // after the first; a rate is of one try
}

type sample struct {
	at    time.Time
	bytes int64 // that have moved
}

func newMeter(now time.Time) *meter {
	return &meter{began: now, recent: []sample{{at: now}}}
}

// read takes progress at time now, which is not before the time of the last call.
func (m *meter) read(p xfer.Progress, now time.Time) reading {
	m.recent = append(m.recent, sample{now, p.MovedBytes})
	if p.Tries != m.tries {
		m.recent, m.tries = m.recent[len(m.recent)-1:], p.Tries
	}
	for len(m.recent) > 2 && now.Sub(m.recent[1].at) >= rateWindow {
		m.recent = m.recent[1:]
	}
	r := reading{Progress: p, elapsed: now.Sub(m.began)}
	if since := m.recent[0]; now.After(since.at) {
		r.bytesPerSecond = max(0, float64(p.MovedBytes-since.bytes)/now.Sub(since.at).Seconds())
	}
	return r
}

// begun reports whether there is anything to show: the ends have met, and an entry was
// found.
func (r *reading) begun() bool {
	return r.Bytes > 0 || r.Files > 0 || r.TotalBytes > 0 || r.TotalKnown
}

// hasShare reports whether the total is known, so that there is a percentage.
func (r *reading) hasShare() bool { return r.TotalKnown && r.TotalBytes > 0 }

// percent is the share of the bytes that are done, rounded down, from 0 to 100. What it
// counts a far end may have told.
func (r *reading) percent() int64 {
	return int64(100 * max(0, min(1, float64(r.Bytes)/float64(r.TotalBytes))))
}

// left returns the time that the rest takes at this rate. It returns false if the time
// is unknown, or so long that the figure means nothing.
func (r *reading) left() (time.Duration, bool) {
	if !r.hasShare() || r.bytesPerSecond <= 0 || r.Bytes >= r.TotalBytes {
		return 0, false
	}
	seconds := float64(r.TotalBytes-r.Bytes) / r.bytesPerSecond
	if seconds >= (1000 * time.Hour).Seconds() {
		return 0, false
	}
	return time.Duration(seconds * float64(time.Second)), true
}

// fields returns the parts of a line, the most important first. All is ASCII, so that
// one byte takes one cell. There are no names, which may hold any bytes.
func (r *reading) fields() []string {
	var f []string
	if r.hasShare() {
		f = append(f, fmt.Sprintf("%3d%%", r.percent()))
	} else {
		f = append(f, bytesText(float64(r.Bytes), 1))
	}
	f = append(f, bytesText(r.bytesPerSecond, 1)+"/s")
	if left, ok := r.left(); ok {
		f = append(f, clockText(left)+" left")
	}
	if r.hasShare() {
		f = append(f, bytesText(float64(r.Bytes), 1)+" of "+bytesText(float64(r.TotalBytes), 1))
	}
	return append(f, count(r.Files, "file", "files"), clockText(r.elapsed)+" so far")
}

// Sizes of the bar at the end of a line, in cells.
const (
	minBarCells = 12
	maxBarCells = 42
)

// line returns the fields that fit into that many cells, and a bar if there is room and
// a percentage.
func (r *reading) line(cells int) string {
	text := ""
	for _, f := range r.fields() {
		longer := f
		if text != "" {
			longer = text + "  " + f
		}
		if len(longer) > cells {
			return text
		}
		text = longer
	}
	room := min(cells-len(text)-2, maxBarCells)
	if !r.hasShare() || room < minBarCells {
		return text
	}
	inner := room - 2
	done := int(float64(inner) * float64(r.percent()) / 100)
	return text + "  [" + strings.Repeat("=", done) + strings.Repeat(" ", inner-done) + "]"
}

// clockText formats a time as 0:08, 12:34 or 1:02:03.
func clockText(d time.Duration) string {
	s := int64(d / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
