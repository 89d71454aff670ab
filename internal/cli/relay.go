package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/remote"
	"gdrcp/xfer"
)

// localFiles returns the options that name files or streams of this host, which neither
// of two remote hosts has.
func localFiles() []string {
	return []string{"manifest", "write-manifest", "files-from", "log-file", "key-file"}
}

// relay copies from one remote host to another: the destination serves, the source
// copies and reports, and this process forwards the reports.
func (c *copyRun) relay(ctx context.Context, p *plan) error {
	args, err := relayedArgs(c.givenOptions)
	if err != nil {
		return err
	}
	c.selection.stdin = c.stdin
	rules, err := c.selection.read(ctx)
	if err != nil {
		return err
	}
	for i := range rules {
		args = append(args, "--filter="+rules[i].String())
	}
	o := c.options
	o.Rules = rules
	asked := remote.Serve{Copy: remote.Copy{Push: true, Dest: p.dst, From: p.sources}}
	to, err := c.startFarEnd(ctx, *p.far, asked, false, &o)
	if err != nil {
		return err
	}
	defer to.Close()
	within, stop := to.watch(ctx)
	defer stop()
	link, err := c.connectFarEnd(within, &c.ssh, *p.from, c.tellBootstrap)
	if err != nil {
		return err
	}
	from := &farEnd{Link: link, where: *p.from}
	defer from.Close()
	run := &remote.Run{
		Key: to.key, Addresses: to.offer.Addresses, NoRails: to.offer.NoRails, NoTCP: to.offer.NoTCP, Machine: to.offer.Machine, From: from.where.host, To: to.where.host,
		Args: args, Sources: p.sources, Dest: remote.AtHome(p.dst, to.offer.Home),
		Terminal: !c.quiet && !c.json && c.isTerminal(c.stderr), Columns: c.columns(),
	}
	defer context.AfterFunc(within, func() { from.Close() })()
	code, err := from.Talk.AskRun(run, &plainWriter{w: c.stdout}, &plainWriter{w: c.stderr})
	if failed := to.whyGone(); failed != nil && (err != nil || code != exitOK) {
		return interruptedOr(ctx, failed)
	}
	if err != nil {
		return from.reason(ctx, err)
	}
	if code == exitOK {
		if err := to.confirm(within, from.where.host); err != nil {
			return interruptedOr(ctx, err)
		}
	}
	from.Leave()
	to.Leave()
	if code != exitOK {
		return &exitCodeError{code}
	}
	return nil
}

// confirmTimeout is how long the destination may take to end its session after the
// source has succeeded.
const confirmTimeout = time.Minute

// unconfirmedError is the error of a copy that succeeded according to its source alone.
type unconfirmedError struct {
	code int
	text string
}

func (e *unconfirmedError) Error() string { return e.text }

// confirm asks the destination how the copy ended after its source, the host from, has
// reported success. The user need not trust the source.
func (f *farEnd) confirm(ctx context.Context, from string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, confirmTimeout, fmt.Errorf("it did not say within %s how the copy ended", confirmTimeout))
	defer cancel()
	code, why, err := f.Talk.AskOutcome(ctx)
	if err != nil {
		code, why = exitError, err.Error()
	}
	if code == exitOK {
		return nil
	}
	return &hintedError{
		&unconfirmedError{code, fmt.Sprintf("%s reports success, but %s does not confirm it: %s", from, f.where.host, why)},
		"look at the destination, and copy again",
	}
}

// relayedArgs returns the options of a command line for the remote process that copies.
// It omits the filter rules, because some of them are in files of this host.
func relayedArgs(given []string) ([]string, error) {
	var passedOn []string
	for _, arg := range given {
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "--"), "=")
		if slices.Contains(localFiles(), name) {
			return nil, args.UsageErrorf("--%s names a file of this host, but the copy is between two other hosts", name)
		}
		if !slices.Contains(sshOptionNames(), name) && !isRuleOption(name) {
			passedOn = append(passedOn, arg)
		}
	}
	return passedOn, nil
}

// relayedCopy runs the copy at the remote process that copies.
func (c *copyRun) relayedCopy(ctx context.Context, o xfer.Options) (*xfer.Summary, error) {
	run := c.relayed
	here, err := makeOfferUntil(ctx, run.Sources)
	if err != nil {
		return nil, err
	}
	paths, noTCP := c.pathsTo(ctx, run.To, dialable(run.Addresses, run.Key, run.Machine), run.NoTCP, &o)
	unreached := func(why error) error {
		return fmt.Errorf("%s does not reach %s, and such a copy cannot go over ssh: %w", run.From, run.To, why)
	}
	if len(paths) == 0 {
		return nil, unreached(errors.Join(noTCP, errors.New(run.NoRails)))
	}
	connected := noteConnection(&o, func(*xfer.Link) {})
	s, err := c.client().Push(ctx, offeredPaths(run.Sources, here), xfer.Endpoint{Host: run.To, Key: run.Key, Addrs: paths}, run.Dest, o)
	if err != nil && !connected.Load() && noTCP != nil {
		err = unreached(errors.Join(noTCP, err))
	}
	return s, err
}
