package cli

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// parseSize parses a number of bytes: digits, optionally followed by K, M, G or T for
// powers of 1024, with or without "iB".
func parseSize(s string) (int64, error) {
	digits := strings.TrimRightFunc(s, unicode.IsLetter)
	shift, unit := 0, s[len(digits):]
	switch strings.TrimSuffix(unit, "iB") {
	case "", "B":
	case "K", "k":
		shift = 10
	case "M":
		shift = 20
	case "G":
		shift = 30
	case "T":
		shift = 40
	default:
		return 0, fmt.Errorf("not a size (write it like 65536, 64K or 1MiB)")
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || unit == "iB" {
		return 0, fmt.Errorf("not a size (write it like 65536, 64K or 1MiB)")
	}
	if n > math.MaxInt64>>shift {
		return 0, fmt.Errorf("too large")
	}
	return int64(n) << shift, nil
}

// bytesText formats a number of bytes with the given number of decimals.
func bytesText(n float64, decimals int) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB", "PiB"}
	i := 0
	for ; n >= 1024 && i < len(units)-1; i++ {
		n /= 1024
	}
	if i == 0 {
		decimals = 0
	}
	return fmt.Sprintf("%.*f %s", decimals, n, units[i])
}

// shortBytes formats a number of bytes in three or four digits.
func shortBytes(n float64) string {
	text := bytesText(n, 1)
	if value, _, _ := strings.Cut(text, " "); len(value) >= len("100.0") {
		return bytesText(n, 0)
	}
	return text
}

// secondsText formats a time in two digits or more.
func secondsText(seconds float64) string {
	switch {
	case seconds < 0.995:
		return fmt.Sprintf("%.2f s", seconds)
	case seconds < 99.95:
		return fmt.Sprintf("%.1f s", seconds)
	}
	return fmt.Sprintf("%.0f s", seconds)
}

// sizeText formats an option's bound in the form that parseSize accepts.
func sizeText(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "GiB"}, {20, "MiB"}, {10, "KiB"}} {
		if n != 0 && n%(1<<u.shift) == 0 {
			return fmt.Sprintf("%d%s", n>>u.shift, u.name)
		}
	}
	return strconv.FormatInt(n, 10)
}

// ringText returns the number of slots of a ring and their size.
func ringText(slots, chunkBytes int) string {
	return count(int64(slots), "slot", "slots") + " of " + sizeText(int64(chunkBytes))
}

// count returns a number with its noun.
func count(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
