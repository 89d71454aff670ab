package remote

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// FarEndCommand is the command that runs the program as the far end.
const FarEndCommand = "far-end"

const (
	// bannerMagic begins the line that identifies the far end.
	bannerMagic = "gdrcp-far-end: protocol "
	// bannerSetUp precedes the version of the set-up, which version 1 omits.
	bannerSetUp = " set-up "
	// maxLineBytes bounds the banner and each line before it, and maxNoiseLines
	// the number of those lines.
	maxLineBytes  = 4 << 10
	maxNoiseLines = 200
	// maxVersionBytes bounds the text of the program's version.
	maxVersionBytes = 100
)

// Banner is the far end's description of itself.
type Banner struct {
	Protocol int
	SetUp    int    // version of package remote's messages; WriteBanner uses its own
	Version  string // for people
}

// WriteBanner identifies this program to the peer. Nothing may be written before it.
func WriteBanner(w io.Writer, b Banner) error {
	_, err := fmt.Fprintf(w, "%s%d%s%d, version %s\n", bannerMagic, b.Protocol, bannerSetUp, setUpVersion, oneLine(b.Version, maxVersionBytes))
	return err
}

// NoiseError is the error for a remote shell that prints text of its own into
// the pipe between the two programs.
type NoiseError struct{ Line string }

func (e *NoiseError) Error() string {
	return fmt.Sprintf("the remote shell printed %q before gdrcp started: login scripts must print nothing when the shell is not interactive", e.Line)
}

// noBannerError is the error for a pipe that ended without a banner.
type noBannerError struct{ lines []string }

func (*noBannerError) Error() string { return "it did not answer" }

// readBanner reads up to the end of the banner. The error is a *noBannerError,
// a *NoiseError if something came before the banner, or an error of the reader.
func readBanner(r *bufio.Reader) (Banner, error) {
	var lines []string
	for len(lines) < maxNoiseLines {
		line, err := readLine(r)
		before, said, isBanner := strings.Cut(line, bannerMagic)
		switch {
		case isBanner && before == "" && len(lines) == 0:
			return parseBanner(said)
		case isBanner:
			return Banner{}, noiseOf(append(lines, before))
		}
		lines = append(lines, line)
		if errors.Is(err, io.EOF) {
			return Banner{}, &noBannerError{lines}
		}
		if err != nil {
			return Banner{}, err
		}
	}
	return Banner{}, noiseOf(lines)
}

// noiseOf quotes the first line that is not blank.
func noiseOf(lines []string) *NoiseError { return &NoiseError{firstText(lines)} }

// firstText returns the first line that is not blank, shortened by oneLine.
func firstText(lines []string) string {
	for _, line := range lines {
		if text := oneLine(line, maxVersionBytes); strings.TrimSpace(text) != "" {
			return text
		}
	}
	return ""
}

// readLine reads a line, without its end. A line that is too long is returned in parts.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		err = nil
	}
	return strings.TrimRight(string(line), "\r\n"), err
}

func parseBanner(s string) (Banner, error) {
	numbers, version, ok := strings.Cut(s, ", version ")
	protocol, setUp, saysSetUp := strings.Cut(numbers, bannerSetUp)
	if !saysSetUp {
		setUp = "1"
	}
	n, err := strconv.ParseUint(protocol, 10, 16)
	m, err2 := strconv.ParseUint(setUp, 10, 16)
	if !ok || err != nil || err2 != nil {
		return Banner{}, fmt.Errorf("a far end that says %q", oneLine(s, maxVersionBytes))
	}
	return Banner{Protocol: int(n), SetUp: int(m), Version: oneLine(version, maxVersionBytes)}, nil
}

// oneLine shortens a text of the peer, and drops unprintable characters.
func oneLine(s string, maxBytes int) string {
	s = s[:min(len(s), maxBytes)]
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) || r == '\uFFFD' {
			return -1
		}
		return r
	}, s)
}
