package cli

import (
	"fmt"
	"strings"

	"gdrcp/xfer"
)

// tellSummary prints the result of a copy in one line. With -v it first prints details
// that do not matter if all is well.
func (c *copyRun) tellSummary(s *xfer.Summary) {
	if c.json {
		c.events.emit(eventOf(s))
		return
	}
	if c.quiet {
		return
	}
	if c.verbose && !s.DryRun {
		c.console.line("gdrcp: %s", rootText(s))
		c.console.line("gdrcp: over %s%s, %s on the wire, %s%s", wayText(s), endsText(s),
			bytesText(float64(s.WireBytes), 1), count(s.Repairs, "repair", "repairs"), firstByteText(s))
		c.console.line("gdrcp: %s", costText(s))
	}
	if text := diskIOText(s); text != "" && c.verbose && !s.DryRun {
		c.console.line("gdrcp: %s", text)
	}
	if text := slotsText(s); text != "" && c.verbose && !s.DryRun {
		c.console.line("gdrcp: %s", text)
	}
	if text := railsText(s); text != "" && !s.DryRun && (c.verbose || c.railLost.Load()) {
		c.console.line("gdrcp: %s", text)
	}
	c.console.line("%s", summaryText(s))
}

// rootText returns the roots over what was copied, if there are roots that cover all attempts.
func rootText(s *xfer.Summary) string {
	if s.Retries > 0 && s.Content == ([32]byte{}) {
		return "no root: an attempt sent files again that an earlier one had copied"
	}
	return fmt.Sprintf("root %s %x, meta root %x", s.Hash, s.Content, s.Meta)
}

// firstByteText says when this end sent its first byte, if it sent any.
func firstByteText(s *xfer.Summary) string {
	if s.FirstByte == 0 {
		return ""
	}
	return fmt.Sprintf(", first byte after %d ms", s.FirstByte.Milliseconds())
}

// summaryText returns the result of a copy for its user. It ends in "verified" if
// everything in the source was copied and the destination has it as it was sent.
// Otherwise that word follows the copied entries, before those that were not copied.
func summaryText(s *xfer.Summary) string {
	if s.DryRun {
		return dryText(s)
	}
	left := leftText(s)
	if copied := copiedEntries(s); copied == 0 {
		return fmt.Sprintf("copied nothing in %s (%s)%s%s", secondsText(s.Seconds), linkText(s), left, trustedText(s))
	}
	claim, end := "copied", ", verified"
	if s.Files == 0 && s.Unchanged > 0 {
		claim = "compared"
	}
	switch {
	case !s.Verified:
		end = ", NOT verified" + left
	case s.Withheld:
		claim, end = withheldClaim, left
	case left != "":
		claim, end = claim+" and verified", left
	}
	how := linkText(s)
	what := countsText(s)
	if s.Files+s.Unchanged > 0 {
		what += ", " + shortBytes(float64(s.Bytes)) + resumedText(s) + sameText(s)
		how = shortBytes(rateOf(s.Bytes-s.ResumedBytes, s.Seconds)) + "/s, " + how
	}
	end += trustedText(s)
	return fmt.Sprintf("%s %s in %s (%s)%s", claim, what, secondsText(s.Seconds), how, end)
}

// resumedText says how many of the bytes an earlier copy had transferred.
func resumedText(s *xfer.Summary) string {
	if s.ResumedBytes == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s of that by an earlier copy)", shortBytes(float64(s.ResumedBytes)))
}

// sameText says how many of the bytes were already at the destination.
func sameText(s *xfer.Summary) string {
	if s.ComparedBytes == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s of that compared and the same, %s sent)", shortBytes(float64(s.SameBytes)), shortBytes(float64(s.SentBytes)))
}

// trustedText says how many bytes are at the destination according to the base manifest alone.
func trustedText(s *xfer.Summary) string {
	if s.Trusted == 0 {
		return ""
	}
	return fmt.Sprintf("; %s, %s, trusted by the basis manifest and not read", count(s.Trusted, "file", "files"), shortBytes(float64(s.TrustedBytes)))
}

// withheldClaim is the result of a copy with --atomic-dir whose tree did not appear.
const withheldClaim = "NOT in place, but copied and verified"

// copiedEntries returns the number of entries that were copied, or were compared and are the same.
func copiedEntries(s *xfer.Summary) int64 { return s.Files + s.Unchanged + s.Dirs + s.Links }

// linkText describes the link of a copy in a word or two.
func linkText(s *xfer.Summary) string {
	text := transportsText(s)
	if s.Link.Device == pipeDevice {
		text += " over ssh"
	}
	if s.Link.Encrypted {
		text += ", encrypted"
	}
	if s.Retries > 0 {
		text += ", " + count(int64(s.Retries), "retry", "retries")
	}
	return text
}

// wayText describes the link of a copy in full.
func wayText(s *xfer.Summary) string {
	text := fmt.Sprintf("%s (%s, %s)", s.Link.Transport, deviceText(&s.Link), s.Link.Imm)
	if s.Link.Encrypted {
		text += ", encrypted"
	}
	if s.Retries > 0 {
		text += ", " + count(int64(s.Retries), "retry", "retries")
	}
	return text
}

// logText returns the result of a copy for logs. It includes the root of the copied
// entries, so that the logs of both ends can be compared.
func logText(s *xfer.Summary) string {
	if s.DryRun {
		return dryText(s)
	}
	proof, _, _ := strings.Cut(rootText(s), ",")
	place := ""
	if s.Withheld && s.Verified && copiedEntries(s) > 0 {
		place = withheldClaim + ": "
	}
	switch {
	case copiedEntries(s) == 0:
		proof = "nothing to verify"
	case s.Verified:
		proof = "verified: " + proof
	default:
		proof = "NOT verified: " + proof
	}
	return fmt.Sprintf("%s%s, %s%s in %.2f s, %s/s, over %s%s, %s%s", place, countsText(s), bytesText(float64(s.Bytes), 1), resumedText(s)+sameText(s), s.Seconds,
		bytesText(rateOf(s.Bytes-s.ResumedBytes, s.Seconds), 2), wayText(s), endsText(s), proof, leftText(s)+trustedText(s))
}

// dryText returns the result of a dry run in one line.
func dryText(s *xfer.Summary) string {
	return fmt.Sprintf("dry run, nothing was changed: would copy %s, %s (%s)%s%s", countsText(s), shortBytes(float64(s.Bytes)), linkText(s), leftText(s), trustedText(s))
}

// countsText returns the numbers of copied entries.
func countsText(s *xfer.Summary) string {
	var what []string
	if s.Files > 0 || copiedEntries(s) == 0 {
		what = append(what, count(s.Files, "file", "files"))
	}
	if s.Unchanged > 0 && !s.DryRun {
		what = append(what, count(s.Unchanged, "unchanged file", "unchanged files"))
	}
	if s.Dirs > 0 {
		what = append(what, count(s.Dirs, "directory", "directories"))
	}
	if s.Links > 0 {
		what = append(what, count(s.Links, "link", "links"))
	}
	return strings.Join(what, ", ")
}

// leftText returns the numbers of entries that were not copied, with reasons, and of
// those that were deleted. Entries that the destination kept were not compared with the
// source, so the text says nothing about their content.
func leftText(s *xfer.Summary) (text string) {
	deleted, unchanged := "deleted", int64(0)
	if s.DryRun {
		deleted, unchanged = "to be deleted", s.Unchanged
	}
	for _, left := range []struct {
		n    int64
		text string
	}{{unchanged, "unchanged"}, {s.Kept, "kept, not compared"}, {s.LeftOut, "left out"}, {s.Failed, "failed"}, {s.Changed, "changed while read"}, {s.Corrupt, "corrupt"}, {s.Missing, "missing"},
		{s.Skipped, "skipped"}, {s.Grown, "grew while copied"}} {
		if left.n > 0 {
			text += fmt.Sprintf("; %d %s", left.n, left.text)
		}
	}
	if n := int64(len(s.Unkept)); n > 0 {
		text += "; " + count(n, "attribute", "attributes") + " not kept"
	}
	if s.Deleted > 0 || s.DeletedAtLeast {
		text += "; " + atLeast(s) + fmt.Sprintf("%d %s", s.Deleted, deleted)
	}
	return text
}

// atLeast returns a prefix for the number of deleted entries if there may be more.
func atLeast(s *xfer.Summary) string {
	if s.DeletedAtLeast {
		return "at least "
	}
	return ""
}
