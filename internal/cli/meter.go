package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"gdrcp/xfer"

	"github.com/schollz/progressbar/v3"
)

// rateWindow is the time over which a rate is measured: long enough for a steady
// figure, and short enough to show that a copy has stopped moving.
const rateWindow = 5 * time.Second

// reading is the progress of a copy at one time.
type reading struct {
	xfer.Progress
	elapsed time.Duration // since the copy began
	// bytesPerSecond is the rate over the last rateWindow, or 0 before a rate is known.
	bytesPerSecond float64
}

// meter turns a tally's progress into readings. Its clock starts once.
type meter struct {
	began  time.Time
	recent []sample // of the last rateWindow, and one older
	tries  int64    // number of retries; a rate is of one attempt
}

type sample struct {
	at    time.Time
	bytes int64 // that were moved
}

func newMeter(now time.Time) *meter {
	return &meter{began: now, recent: []sample{{at: now}}}
}

// read takes progress at time now, which must not be before the time of the last call.
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

// begun reports whether there is anything to show: the ends are connected, and an entry was found.
func (r *reading) begun() bool {
	return r.Bytes > 0 || r.Files > 0 || r.TotalBytes > 0 || r.TotalKnown
}

// hasShare reports whether the total is known, so that a percentage can be shown.
func (r *reading) hasShare() bool { return r.TotalKnown && r.TotalBytes > 0 }

// percent returns the share of the bytes that are done, rounded down, from 0 to 100.
// The counts may come from the peer and cannot be trusted.
func (r *reading) percent() int64 {
	return int64(100 * max(0, min(1, float64(r.Bytes)/float64(r.TotalBytes))))
}

// left returns the estimated time for the remaining bytes. It returns false if the time
// is unknown, or so long that the figure is meaningless.
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

// share returns the first field of a line: the percentage of bytes done or, before the
// total is known, their number.
func (r *reading) share() string {
	if r.hasShare() {
		return fmt.Sprintf("%3d%%", r.percent())
	}
	return bytesText(float64(r.Bytes), 1)
}

// fields returns the fields after the share in a line, the most important first. All are ASCII, so
// that one byte takes one cell. They contain no names, which may hold any bytes.
func (r *reading) fields() []string {
	f := []string{bytesText(r.bytesPerSecond, 1) + "/s"}
	if left, ok := r.left(); ok {
		f = append(f, clockText(left)+" left")
	}
	if r.hasShare() {
		f = append(f, bytesText(float64(r.Bytes), 1)+" of "+bytesText(float64(r.TotalBytes), 1))
	}
	return append(f, count(r.Files, "file", "files"), clockText(r.elapsed)+" so far")
}

// Cells of a terminal.
const (
	barFrame    = len(" 100% []") // that a bar adds to its description
	minBarCells = 7               // of the bar itself
	barColumns  = 30              // minimum width of a terminal for a bar
)

// line returns a line of at most that many cells: as many fields as fit, and a bar if
// the total is known and the terminal is wide enough.
func (r *reading) line(cells int) string {
	if !r.hasShare() || cells+1 < barColumns {
		return fit(append([]string{r.share()}, r.fields()...), cells)
	}
	description := fit(r.fields(), cells-barFrame-minBarCells)
	// Each line has its own bar, because the width changes with the terminal's, and the
	// share falls when a copy restarts.
	bar := progressbar.NewOptions64(100, progressbar.OptionSetDescription(description),
		progressbar.OptionSetWidth(cells-len(description)-barFrame), progressbar.OptionSetTheme(barTheme),
		progressbar.OptionSetElapsedTime(false), progressbar.OptionSetPredictTime(false), progressbar.OptionSetWriter(io.Discard))
	_ = bar.Set64(r.percent())
	_ = bar.RenderBlank() // draws a bar that has not begun, too
	return strings.TrimRight(strings.TrimLeft(bar.String(), "\r"), " ")
}

var barTheme = progressbar.Theme{Saucer: "=", SaucerPadding: " ", BarStart: "[", BarEnd: "]"}

// fit joins as many of the fields as fit into that many cells.
func fit(fields []string, cells int) string {
	text := ""
	for i, f := range fields {
		if i > 0 {
			f = "  " + f
		}
		if len(text)+len(f) > cells {
			break
		}
		text += f
	}
	return text
}

// clockText formats a time as 0:08, 12:34 or 1:02:03.
func clockText(d time.Duration) string {
	s := int64(d / time.Second)
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
