package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"gdrcp/xfer"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// refresh is how often the bar is drawn.
const refresh = 100 * time.Millisecond

// console is where lines for people go, and below them, on a terminal, a bar.
type console struct {
	mu  sync.Mutex
	w   io.Writer
	bar *progressbar.ProgressBar // nil when none is drawn
}

// line writes a line above the bar.
func (c *console) line(format string, args ...any) { c.lineTo(c.w, format, args...) }

// lineTo writes a line elsewhere, which may be the same terminal.
func (c *console) lineTo(w io.Writer, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.bar != nil {
		_ = c.bar.Clear()
	}
	fmt.Fprintf(w, format+"\n", args...)
}

// isTerminal reports whether w is, or is shown on, a terminal that can redraw a
// line.
func (p *program) isTerminal(w io.Writer) bool {
	if p.relayed != nil {
		return p.relayed.Terminal && w == p.stderr
	}
	f, ok := beneath(w).(*os.File)
	return ok && term.IsTerminal(int(f.Fd())) && p.getenv("TERM") != "dumb"
}

// follow draws what tally says until the returned function is called, which
// leaves no trace of the bar.
func (c *console) follow(tally *xfer.Tally) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(refresh)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				c.draw(tally.Read())
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.bar != nil {
			_ = c.bar.Clear()
			c.bar = nil
		}
	}
}

// draw shows a reading: bytes and a rate while the source is still looking for
// files, a bar with the time left once the total is known. The bar's errors
// are about arithmetic of its own and matter to nobody.
func (c *console) draw(p xfer.Progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.Bytes == 0 && !p.TotalKnown {
		return // connecting
	}
	total := int64(-1)
	if p.TotalKnown {
		total = max(p.TotalBytes, 1)
	}
	if c.bar == nil || c.bar.GetMax64() != total {
		if c.bar != nil { // one that has counted without a total never gets it right
			_ = c.bar.Clear()
		}
		c.bar = progressbar.NewOptions64(total,
			progressbar.OptionSetWriter(c.w), progressbar.OptionUseIECUnits(true), progressbar.OptionShowBytes(true), progressbar.OptionShowCount(),
			progressbar.OptionSetPredictTime(true), progressbar.OptionSetElapsedTime(true), progressbar.OptionFullWidth(),
			progressbar.OptionSpinnerType(14), progressbar.OptionSetSpinnerChangeInterval(0))
	}
	if total < 0 || p.Bytes < total {
		_ = c.bar.Set64(p.Bytes)
	}
}
