package cli

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"gdrcp/xfer"

	"golang.org/x/term"
)

// These are the intervals at which progress is shown: as a line that is redrawn on a
// terminal, as separate lines elsewhere, and as events.
const (
	redrawEvery = 100 * time.Millisecond
	lineEvery   = 10 * time.Second
	eventEvery  = time.Second
)

// assumedColumns is the width of a terminal that does not report one.
const assumedColumns = 80

// console prints lines and, below them on a terminal, a progress line.
type console struct {
	w       io.Writer
	columns func() int // of the terminal w; 0 or a nil func: unknown

	mu    sync.Mutex
	drawn int // cells of the progress line; 0 if there is none
	held  int // number of callers that want no progress line
}

// line writes a line above the progress line.
func (c *console) line(format string, args ...any) { c.lineTo(c.w, format, args...) }

// lineTo writes a line to w, which may be the same terminal.
func (c *console) lineTo(w io.Writer, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	fmt.Fprintf(w, format+"\n", args...)
}

// width returns how many cells a line may take. After the last cell is filled, some
// terminals move to the next line.
func (c *console) width() int {
	columns := 0
	if c.columns != nil {
		columns = c.columns()
	}
	if columns <= 0 {
		columns = assumedColumns
	}
	return columns - 1
}

// wipe removes the progress line. It writes spaces, because plainWriter would stop an
// escape sequence.
func (c *console) wipe() {
	if c.drawn > 0 {
		fmt.Fprintf(c.w, "\r%s\r", strings.Repeat(" ", min(c.drawn, c.width())))
	}
	c.drawn = 0
}

// hold removes the progress line and draws none until the returned function is called,
// because another program may prompt the user on the terminal.
func (c *console) hold() (release func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
	c.held++
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.held--
	}
}

// draw replaces the last reading in one write, unless the progress line is held.
func (c *console) draw(r reading) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held > 0 {
		return
	}
	cells := c.width()
	text := r.line(cells)
	fmt.Fprintf(c.w, "\r%s%s", text, strings.Repeat(" ", max(0, min(c.drawn, cells)-len(text))))
	c.drawn = len(text)
}

// clear removes the progress line.
func (c *console) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wipe()
}

// tell writes a reading as a line that is not redrawn.
func (c *console) tell(r reading) {
	c.line("gdrcp: %s, %s", strings.TrimLeft(r.share(), " "), strings.Join(r.fields(), ", "))
}

// tally is the interface of an xfer.Tally.
type tally interface{ Read() xfer.Progress }

// follow shows a reading of a tally at each interval, from when something has begun until the
// returned function is called. After that function has returned, nothing more is shown.
func follow(of tally, every time.Duration, show func(reading)) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	m := newMeter(time.Now())
	go func() {
		defer close(stopped)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if r := m.read(of.Read(), time.Now()); r.begun() {
					show(r)
				}
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// progressReporter reports progress on the console and as events, as requested.
type progressReporter struct {
	console *console
	events  *events // nil without --json
	wanted  bool    // --progress was given
	quiet   bool
	redraws bool // the console is a terminal that can redraw a line
}

// follow reports a tally's progress until the returned function is called.
func (w *progressReporter) follow(of tally) (end func()) {
	switch {
	case w.quiet:
		return func() {}
	case w.events != nil:
		return follow(of, eventEvery, func(r reading) { w.events.emit(progressEventOf(&r)) })
	case w.redraws:
		end := follow(of, redrawEvery, w.console.draw)
		return func() {
			end()
			w.console.clear()
		}
	case w.wanted:
		return follow(of, lineEvery, w.console.tell)
	}
	return func() {}
}

// isTerminal reports whether w is a terminal that can redraw a line, or is shown on one.
func (p *program) isTerminal(w io.Writer) bool {
	if p.relayed != nil {
		return p.relayed.Terminal && w == p.stderr
	}
	f, ok := unwrapWriter(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && p.getenv("TERM") != "dumb"
}

// columns returns the current width of the terminal on standard error. In a relayed copy it is the
// width of the user's terminal when the copy was requested. It is 0 if unknown.
func (p *program) columns() int {
	if p.relayed != nil {
		return p.relayed.Columns
	}
	f, ok := unwrapWriter(p.stderr).(*os.File)
	if !ok {
		return 0
	}
	columns, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		return 0
	}
	return columns
}

// newConsole returns the console on standard error.
func (p *program) newConsole() *console { return &console{w: p.stderr, columns: p.columns} }
