package cli

import (
	"fmt"
	"strings"
	"time"

	"gdrcp/xfer"
)

// rateWindow is the time over which a rate is taken: long enough to be read, and
// short enough to show that a copy has come to a stand.
const rateWindow = 5 * time.Second

// reading is how far a copy has come.
type reading struct {
	xfer.Progress
	elapsed time.Duration // since the copy began, whatever has become known since
	// bytesPerSecond is that of the last rateWindow; 0 before there is one.
	bytesPerSecond float64
}

// meter makes readings of a tally's progress. Its clock starts once.
type meter struct {
	began  time.Time
	recent []sample // of the last rateWindow, and one that is older
}

type sample struct {
	at    time.Time
	bytes int64
}

func newMeter(now time.Time) *meter {
	return &meter{began: now, recent: []sample{{at: now}}}
}

// read takes progress at a time that is not before that of the last call.
func (m *meter) read(p xfer.Progress, now time.Time) reading {
	m.recent = append(m.recent, sample{now, p.Bytes})
	for len(m.recent) > 2 && now.Sub(m.recent[1].at) >= rateWindow {
		m.recent = m.recent[1:]
	}
	r := reading{Progress: p, elapsed: now.Sub(m.began)}
	if since := m.recent[0]; now.After(since.at) {
		r.bytesPerSecond = float64(p.Bytes-since.bytes) / now.Sub(since.at).Seconds()
	}
	return r
}

// begun reports whether there is anything to tell: the ends have met, and
// something was found.
func (r *reading) begun() bool {
	return r.Bytes > 0 || r.Files > 0 || r.TotalBytes > 0 || r.TotalKnown
}

// hasShare reports whether it is known what the bytes are a share of.
func (r *reading) hasShare() bool { return r.TotalKnown && r.TotalBytes > 0 }

// percent is the share of the bytes that are done, rounded down.
func (r *reading) percent() int64 {
	return int64(100 * min(1, float64(r.Bytes)/float64(r.TotalBytes)))
}

// left is the time that the rest takes at this rate, or false where that is not
// known, or so long that the figure says nothing.
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

// fields are what a line says, the most important first. All is ASCII, so that
// one byte takes one cell; no names, which may be of anything.
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

// Of the bar at the end of a line, in cells.
const (
	minBarCells = 12
	maxBarCells = 42
)

// line is what fits into that many cells, and where there is room and a share, a
// bar.
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

// clockText is a time as 0:08, 12:34 or 1:02:03.
func clockText(d time.Duration) string {
	s := int64(d / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
