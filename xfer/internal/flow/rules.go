package flow

import (
	"context"
	"fmt"

	"gdrcp/internal/filter"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/wire"
)

// TellRules is for the client. It sets the rules for this session and sends them to the server,
// which must follow the same.
func (s *Session) TellRules(ctx context.Context, rules []filter.Rule) (err error) {
	if len(rules) == 0 {
		return nil
	}
	if s.Rules, err = filter.Compile(rules); err != nil {
		return fmt.Errorf("%w: %w", fault.ErrUsage, err)
	}
	parts := wire.NewSelectionParts(wire.SelectionRules, func(part []byte) error { return s.Ctl.Send(ctx, wire.MsgSelection, part) })
	var rule []byte
	for i := range rules {
		rule = wire.AppendRule(rule[:0], &rules[i])
		if err := parts.Add(rule); err != nil {
			return err
		}
	}
	return parts.End()
}

// HearRules is for the server. It waits for the client's rules, if the hello announced any, and
// returns them.
func (s *Session) HearRules(ctx context.Context) (rules []filter.Rule, err error) {
	if s.Terms.Flags&wire.FlagRules == 0 {
		return nil, nil
	}
	var r wire.RulesReader
	for last := false; !last; {
		err := s.Expect(ctx, wire.MsgSelection, "rules", func(body []byte) (err error) {
			last, err = r.Take(body)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if s.Rules, err = filter.Compile(r.Rules); err != nil {
		return nil, fmt.Errorf("%w: %w", fault.ErrProtocol, err)
	}
	return r.Rules, nil
}
