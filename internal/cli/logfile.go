package cli

import (
	"fmt"
	"os"
	"strings"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/printable"
	"gdrcp/xfer"
)

// logFile is the file that --log-file names. It keeps its first error and writes
// nothing afterwards. A nil logFile discards everything.
type logFile struct {
	paths logPaths // set before the engine reports entries
	ends  endNames // set before the engine reports anything
	out   *output
	file  *os.File
}

// openLog opens a log to append to.
func (p *program) openLog(name string) (*logFile, error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o666)
	if err != nil {
		return nil, fmt.Errorf("open the log file: %w", err)
	}
	return &logFile{out: p.newOutput(fmt.Sprintf("the log file %q", name), f, false, readerPatience), file: f}, nil
}

// line writes a line with the time and the process ID, as rsync(1) does. It makes a
// single write, so that lines of several programs that log to the same file do not mix.
func (l *logFile) line(format string, args ...any) {
	if l == nil {
		return
	}
	text := printable.Text(fmt.Sprintf(format, args...))
	fmt.Fprintf(l.out, "%s [%d] %s\n", time.Now().Format("2006/01/02 15:04:05"), os.Getpid(), text)
}

// output returns the output to which the log is written.
func (l *logFile) output() *output {
	if l == nil {
		return &output{}
	}
	return l.out
}

// asked logs sources and destination as the command line gave them.
func (l *logFile) asked(operands []string) {
	words := make([]string, len(operands))
	for i, o := range operands {
		words[i] = args.Quote(o)
	}
	last := len(words) - 1
	l.line("copy %s to %s", strings.Join(words[:last], " "), words[last])
}

// close closes the log and returns the first error of writing it.
func (l *logFile) close() error {
	if l == nil {
		return nil
	}
	lost := l.out.finish()
	_ = l.file.Close() // finish returned the error
	return lost
}

// event logs an event of the engine.
func (l *logFile) event(e *xfer.Event) {
	switch {
	case l == nil:
	case e.Kind == xfer.EventConnected:
		l.line("connected to %s over %s (%s), %s, %s", e.Link.Remote, e.Link.Transport, deviceText(e.Link),
			count(int64(e.Link.QPs), "queue pair", "queue pairs"), ringText(e.Link.Slots, e.Link.ChunkBytes))
	case e.Kind == xfer.EventWaiting:
		l.line("waiting: %s", e.Text)
	case isRailEvent(e.Kind):
		l.line("%s", railText(e))
	case e.Kind == xfer.EventWarning:
		l.line("warning: %s", e.Text)
	case e.Kind == xfer.EventAfresh:
		l.line("%s", l.ends.afreshText(e))
	case e.Kind == xfer.EventRing:
		l.line("%s", l.ends.ringText(e))
	case e.Kind == xfer.EventMemory:
		l.line("%s", memoryText(e.Memory, e.Remote))
	case e.Kind == xfer.EventPlaced:
		l.paths.place.Store(e.Place)
	case e.Kind == xfer.EventDeleted && e.Text != "":
		l.line("not deleted %s/: %s", l.paths.to(e.Path), e.Text)
	case e.Kind == xfer.EventDeleted && e.DryRun:
		l.line("would delete %s", l.paths.to(e.Path))
	case e.Kind == xfer.EventDeleted:
		l.line("deleted %s", l.paths.to(e.Path))
	case e.Kind == xfer.EventFile && e.Outcome == xfer.Kept:
		l.line("%s %s: %s", keptWord(e), l.paths.to(e.Path), e.Text)
	case e.Kind == xfer.EventFile && e.Outcome == xfer.Copied:
		if e.Trusted {
			l.line("trusted %s, %d bytes", l.paths.to(e.Path), e.Bytes)
			return
		}
		if e.Unchanged {
			l.line("unchanged %s, %d bytes", l.paths.to(e.Path), e.Bytes)
			return
		}
		does, grown := "copied", ""
		if e.DryRun {
			does = "would copy"
		}
		if e.Text != "" {
			grown = ": " + e.Text
		}
		l.line("%s %s to %s, %d bytes%s", does, l.paths.from(e.Path), l.paths.to(e.Path), e.Bytes, grown)
	case e.Kind == xfer.EventFile && e.Path == "": // no entry has such a path
		l.line("%s %s", outcomeText(e.Outcome), e.Text)
	case e.Kind == xfer.EventFile:
		l.line("%s %s to %s: %s", outcomeText(e.Outcome), l.paths.from(e.Path), l.paths.to(e.Path), e.Text)
	}
}

// end logs how the copy ended, and returns the log's own error.
func (l *logFile) end(summary *xfer.Summary, err error, interrupted bool) error {
	switch {
	case err != nil:
		f := explain(err, interrupted)
		l.line("error: %s (exit code %d)", f.text, f.code)
	case summary != nil:
		for _, text := range undoneTexts(summary) {
			l.line("%s", text)
		}
		l.line("total: %s (exit code %d)", logText(summary), codeOfSummary(summary))
	}
	return l.close()
}
