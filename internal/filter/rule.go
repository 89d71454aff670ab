package filter

import (
	"errors"
	"fmt"
	"strings"
)

// Bounds of a list of rules. A list from a peer is checked against them.
const (
	// MaxRules is the maximum number of rules in a list.
	MaxRules = 10_000
	// MaxBytes bounds the total length of the patterns of a list.
	MaxBytes = 1 << 20
	// MaxPatternBytes is the longest pattern: PATH_MAX without its NUL.
	MaxPatternBytes = 4095
)

// ErrSyntax is the error for an invalid rule, or one that this package does not support.
var ErrSyntax = errors.New("bad filter rule")

func syntaxError(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSyntax, fmt.Sprintf(format, args...))
}

// Rule is one rule: entries that match Pattern are included or excluded. The first rule
// that matches decides.
type Rule struct {
	Pattern string
	Include bool
	// Absolute matches a pattern with a slash against the entry's path in the
	// file system (modifier /) instead of its path in the transfer.
	Absolute bool
	// Negate makes a rule match entries that the pattern does not match (modifier !).
	Negate bool
	// Perishable rules do not apply in directories that are being deleted (p).
	Perishable bool
	// Sender and Receiver are the sides to which the rule applies (s and r, or
	// hide, show, protect and risk). If neither is set, it applies to both.
	Sender, Receiver bool
}

// Check returns an error unless the rule compiles.
func (r *Rule) Check() error {
	switch {
	case r.Pattern == "":
		return syntaxError("an empty pattern")
	case len(r.Pattern) > MaxPatternBytes:
		return syntaxError("a pattern of %d bytes, at most %d", len(r.Pattern), MaxPatternBytes)
	case strings.IndexByte(r.Pattern, 0) >= 0:
		return syntaxError("a NUL in %q", r.Pattern)
	}
	return nil
}

// String returns the rule in the form of --filter.
func (r *Rule) String() string {
	text := "-"
	if r.Include {
		text = "+"
	}
	for _, m := range []struct {
		on bool
		as string
	}{{r.Absolute, "/"}, {r.Negate, "!"}, {r.Sender, "s"}, {r.Receiver, "r"}, {r.Perishable, "p"}} {
		if m.on {
			text += m.as
		}
	}
	return text + " " + r.Pattern
}

// SenderOnly returns the rules for --delete-excluded: rules without a side
// apply only to the sender.
func SenderOnly(rules []Rule) []Rule {
	out := make([]Rule, len(rules))
	for i, r := range rules {
		r.Sender = r.Sender || !r.Receiver
		out[i] = r
	}
	return out
}
