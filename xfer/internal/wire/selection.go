package wire

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/fileset"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
)

// The kinds of MsgSelection. The client sends rules and names. The source sends requests
// for names.
const (
	SelectionRules  = 1
	SelectionNames  = 2
	SelectionWanted = 3
)

// The flags of a rule on the wire.
const (
	ruleInclude    = 1 << 0
	ruleAbsolute   = 1 << 1
	ruleNegate     = 1 << 2
	rulePerishable = 1 << 3
	ruleSender     = 1 << 4
	ruleReceiver   = 1 << 5
	ruleFlagsKnown = 1<<6 - 1
)

func ruleFlags(r *filter.Rule) (flags byte) {
	for i, on := range []bool{r.Include, r.Absolute, r.Negate, r.Perishable, r.Sender, r.Receiver} {
		if on {
			flags |= 1 << i
		}
	}
	return flags
}

// AppendRule appends one rule: flags, then the pattern preceded by its length.
func AppendRule(b []byte, r *filter.Rule) []byte {
	b = append(b, ruleFlags(r))
	b = binary.AppendUvarint(b, uint64(len(r.Pattern)))
	return append(b, r.Pattern...)
}

// rule decodes one rule.
func (c *Cursor) rule() (filter.Rule, error) {
	flags := c.Byte()
	r := filter.Rule{
		Include: flags&ruleInclude != 0, Absolute: flags&ruleAbsolute != 0, Negate: flags&ruleNegate != 0,
		Perishable: flags&rulePerishable != 0, Sender: flags&ruleSender != 0, Receiver: flags&ruleReceiver != 0,
		Pattern: c.Str(),
	}
	if flags&^ruleFlagsKnown != 0 {
		return r, fmt.Errorf("%w: a rule with flags %#x", ErrProtocol, flags)
	}
	return r, nil
}

// selectionHeadBytes is the number of bytes before the rules or names of a part.
const selectionHeadBytes = 2

// SelectionPart returns the beginning of a part of MsgSelection.
func SelectionPart(kind byte) []byte { return []byte{kind, 0} }

// SelectionParts divides a client's rules or names into parts of MsgSelection.
type SelectionParts struct {
	part []byte
	send func(part []byte) error // must not keep the part
}

// Add adds a rule or a name. If the part is full, Add sends it first.
func (p *SelectionParts) Add(item []byte) error {
	if len(p.part)+len(item) > MaxBodyBytes {
		if err := p.send(p.part); err != nil {
			return err
		}
		p.part = p.part[:selectionHeadBytes]
	}
	p.part = append(p.part, item...)
	return nil
}

// End sends the last part.
func (p *SelectionParts) End() error {
	p.part[1] = 1
	return p.send(p.part)
}

// NewSelectionParts starts the parts of one kind. It passes each part to send.
func NewSelectionParts(kind byte, send func(part []byte) error) *SelectionParts {
	return &SelectionParts{part: SelectionPart(kind), send: send}
}

// DecodeSelection decodes a part: its kind, whether it is the last of that kind, and
// its content.
func DecodeSelection(body []byte) (kind byte, last bool, c Cursor, err error) {
	c = Cursor{Buf: body}
	kind, flag := c.Byte(), c.Byte()
	if c.Bad || flag > 1 {
		return 0, false, c, fmt.Errorf("%w: unknown selection", ErrProtocol)
	}
	return kind, flag == 1, c, nil
}

// RulesReader collects the rules of a client.
type RulesReader struct {
	Rules []filter.Rule
	bytes int
}

// Take adds a part and reports whether it was the last one.
func (r *RulesReader) Take(body []byte) (last bool, err error) {
	kind, last, c, err := DecodeSelection(body)
	if err != nil {
		return false, err
	}
	if kind != SelectionRules {
		return false, fmt.Errorf("%w: a selection of kind %d among rules", ErrProtocol, kind)
	}
	if !last && len(c.Buf) == 0 {
		return false, fmt.Errorf("%w: a part of no rules", ErrProtocol)
	}
	for len(c.Buf) > 0 && !c.Bad {
		one, err := c.rule()
		if err != nil {
			return false, err
		}
		r.bytes += len(one.Pattern)
		if len(r.Rules) >= filter.MaxRules || r.bytes > filter.MaxBytes {
			return false, fmt.Errorf("%w: more than %d rules or %d bytes of them", ErrProtocol, filter.MaxRules, filter.MaxBytes)
		}
		r.Rules = append(r.Rules, one)
	}
	return last, c.Err("list of rules")
}

// The flags of a name on the wire.
const (
	nameNamed      = 1 << 0
	nameContents   = 1 << 1
	nameImplied    = 1 << 2
	nameFlagsKnown = 1<<3 - 1
)

// AppendName appends one name: flags, then the path preceded by its length.
func AppendName(b []byte, item *fileset.Listed) []byte {
	var flags byte
	for i, on := range []bool{item.Named, item.Contents, item.Implied} {
		if on {
			flags |= 1 << i
		}
	}
	b = append(b, flags)
	b = binary.AppendUvarint(b, uint64(len(item.Path)))
	return append(b, item.Path...)
}

// ListedName decodes one name.
func (c *Cursor) ListedName() (fileset.Listed, error) {
	flags := c.Byte()
	item := fileset.Listed{
		Path: c.Str(), Named: flags&nameNamed != 0, Contents: flags&nameContents != 0, Implied: flags&nameImplied != 0,
	}
	if flags&^nameFlagsKnown != 0 || !item.Named && (item.Contents || !item.Implied) {
		return item, fmt.Errorf("%w: a name with flags %#x", ErrProtocol, flags)
	}
	if err := manifest.CheckPath(item.Path); err != nil {
		return item, fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return item, nil
}
