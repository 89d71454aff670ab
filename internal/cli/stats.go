package cli

import (
	"strconv"
	"strings"

	"gdrcp/xfer"
)

// tellStats prints the result of a copy for --stats: a line for each number, in rsync's
// words if rsync prints that number. The summary event of --json has the numbers.
func (c *copyRun) tellStats(s *xfer.Summary) {
	if !c.stats || c.json || c.quiet {
		return
	}
	for _, line := range statsLines(s) {
		c.console.line("%s", line)
	}
}

func statsLines(s *xfer.Summary) []string {
	lines := []string{
		"Number of deleted files: " + atLeast(s) + grouped(s.Deleted),
		"Number of regular files transferred: " + grouped(s.Files),
		"Number of unchanged files: " + grouped(s.Unchanged),
		"Number of directories: " + grouped(s.Dirs),
		"Number of links: " + grouped(s.Links),
	}
	if s.Trusted > 0 {
		lines = append(lines, "Number of trusted files, not read: "+grouped(s.Trusted), "Data of trusted files, not read: "+grouped(s.TrustedBytes)+" bytes")
	}
	var left []string
	for _, n := range []struct {
		name string
		n    int64
	}{{"kept", s.Kept}, {"left out", s.LeftOut}, {"skipped", s.Skipped}, {"changed", s.Changed}, {"failed", s.Failed}, {"corrupt", s.Corrupt}, {"missing", s.Missing}} {
		if n.n > 0 {
			left = append(left, n.name+": "+grouped(n.n))
		}
	}
	notCopied := "Number of entries not transferred: " + grouped(s.Kept+s.LeftOut+s.Skipped+s.Changed+s.Failed+s.Corrupt+s.Missing)
	if len(left) > 0 {
		notCopied += " (" + strings.Join(left, ", ") + ")"
	}
	lines = append(lines, notCopied, "Total transferred file size: "+grouped(s.Bytes-s.UnchangedBytes)+" bytes")
	if s.DryRun {
		return lines
	}
	if s.Retries > 0 {
		lines = append(lines, "Number of retries: "+grouped(int64(s.Retries)))
	}
	return append(lines,
		"Sent data: "+grouped(s.SentBytes)+" bytes",
		"Compared data: "+grouped(s.ComparedBytes)+" bytes",
		"Compared data that is the same: "+grouped(s.SameBytes)+" bytes",
		"Data of kept files, not compared: "+grouped(s.SkippedBytes)+" bytes",
		"Total data on the wire: "+grouped(s.WireBytes)+" bytes",
		"Number of pieces sent again: "+grouped(s.Repairs),
		"Total time: "+strconv.FormatFloat(s.Seconds, 'f', 3, 64)+" seconds",
	)
}

// grouped formats a number as rsync does in --stats: 1,234,567.
func grouped(n int64) string {
	digits := strconv.FormatInt(n, 10)
	text := ""
	for len(digits) > 3 && digits[len(digits)-4] != '-' {
		text = "," + digits[len(digits)-3:] + text
		digits = digits[:len(digits)-3]
	}
	return digits + text
}
