package xfer

import (
	"context"
	"encoding/binary"
	"fmt"

	"gdrcp/internal/filter"
)

// msgChoice carries what a client chose of a tree, in parts, behind the welcome:
// filter rules, and the names of --files-from.
const msgChoice msgType = 16

// flagRules: filter rules follow the welcome.
const flagRules = 1 << 22

// flagOneFileSystem: the source enters no other file system than each source's own.
const flagOneFileSystem = 1 << 28

// Kinds of msgChoice.
const choiceRules = 1

// Flags of a rule on the wire.
const (
	ruleInclude = 1 << iota
	ruleAbsolute
	ruleNegate
	rulePerishable
	ruleSender
	ruleReceiver
	ruleFlagsKnown = 1<<iota - 1
)

func ruleFlags(r *filter.Rule) (flags byte) {
	for i, on := range []bool{r.Include, r.Absolute, r.Negate, r.Perishable, r.Sender, r.Receiver} {
		if on {
			flags |= 1 << i
		}
	}
	return flags
}

// appendRule appends one rule: flags, then the pattern with its length.
func appendRule(b []byte, r *filter.Rule) []byte {
	b = append(b, ruleFlags(r))
	b = binary.AppendUvarint(b, uint64(len(r.Pattern)))
	return append(b, r.Pattern...)
}

// rule reads one rule.
func (c *cursor) rule() (filter.Rule, error) {
	flags := c.byte()
	r := filter.Rule{
		Include: flags&ruleInclude != 0, Absolute: flags&ruleAbsolute != 0, Negate: flags&ruleNegate != 0,
		Perishable: flags&rulePerishable != 0, Sender: flags&ruleSender != 0, Receiver: flags&ruleReceiver != 0,
		Pattern: c.str(),
	}
	if flags&^ruleFlagsKnown != 0 {
		return r, fmt.Errorf("%w: a rule with flags %#x", ErrProtocol, flags)
	}
	return r, nil
}

// choiceHeadBytes is what is before the rules or names of a part.
const choiceHeadBytes = 2

// choicePart begins a part of msgChoice.
func choicePart(kind byte) []byte { return []byte{kind, 0} }

// choiceParts cuts what a client chose into parts of msgChoice.
type choiceParts struct {
	part []byte
	send func(part []byte) error // keeps nothing of the part
}

func newChoiceParts(kind byte, send func(part []byte) error) *choiceParts {
	return &choiceParts{part: choicePart(kind), send: send}
}

// add adds a rule or a name, and sends the part before it where it is full.
func (p *choiceParts) add(item []byte) error {
	if len(p.part)+len(item) > maxBodyBytes {
		if err := p.send(p.part); err != nil {
			return err
		}
		p.part = p.part[:choiceHeadBytes]
	}
	p.part = append(p.part, item...)
	return nil
}

// end sends the last part.
func (p *choiceParts) end() error {
	p.part[1] = 1
	return p.send(p.part)
}

// decodeChoice takes a part apart: its kind, whether it is the last one of that,
// and what it has.
func decodeChoice(body []byte) (kind byte, last bool, c cursor, err error) {
	c = cursor{b: body}
	kind, flag := c.byte(), c.byte()
	if c.bad || flag > 1 {
		return 0, false, c, fmt.Errorf("%w: a choice that is none", ErrProtocol)
	}
	return kind, flag == 1, c, nil
}

// tellRules is the client's: it goes by the rules from here on, and the server
// is to do the same.
func (s *session) tellRules(ctx context.Context, rules []filter.Rule) (err error) {
	if len(rules) == 0 {
		return nil
	}
	if s.rules, err = filter.Compile(rules); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	parts := newChoiceParts(choiceRules, func(part []byte) error { return s.ctl.send(ctx, msgChoice, part) })
	var rule []byte
	for i := range rules {
		rule = appendRule(rule[:0], &rules[i])
		if err := parts.add(rule); err != nil {
			return err
		}
	}
	return parts.end()
}

// rulesReader collects the rules of a client.
type rulesReader struct {
	rules []filter.Rule
	bytes int
}

// take takes a part and reports whether it is the last one.
func (r *rulesReader) take(body []byte) (last bool, err error) {
	kind, last, c, err := decodeChoice(body)
	if err != nil {
		return false, err
	}
	if kind != choiceRules {
		return false, fmt.Errorf("%w: a choice of kind %d among rules", ErrProtocol, kind)
	}
	if !last && len(c.b) == 0 {
		return false, fmt.Errorf("%w: a part of no rules", ErrProtocol)
	}
	for len(c.b) > 0 && !c.bad {
		one, err := c.rule()
		if err != nil {
			return false, err
		}
		r.bytes += len(one.Pattern)
		if len(r.rules) >= filter.MaxRules || r.bytes > filter.MaxBytes {
			return false, fmt.Errorf("%w: more than %d rules or %d bytes of them", ErrProtocol, filter.MaxRules, filter.MaxBytes)
		}
		r.rules = append(r.rules, one)
	}
	return last, c.err("list of rules")
}

// takeRules is the server's: it waits for the client's rules, where the hello
// promised some, and returns them.
func (s *session) takeRules(ctx context.Context) (rules []filter.Rule, err error) {
	if s.params.flags&flagRules == 0 {
		return nil, nil
	}
	var r rulesReader
	for last := false; !last; {
		err := s.expect(ctx, msgChoice, "rules", func(body []byte) (err error) {
			last, err = r.take(body)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if s.rules, err = filter.Compile(r.rules); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return r.rules, nil
}
