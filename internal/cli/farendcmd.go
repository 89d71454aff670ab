package cli

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/pattern"
	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// farEndCommand is the command that another gdrcp starts on this host through ssh.
func (p *program) farEndCommand() *cli.Command {
	return &cli.Command{
		Name: remote.FarEndCommand, Hidden: true, Usage: "serve the gdrcp that started this one", Action: action(p.farEnd),
		Description: "Talks to the gdrcp that started it, over stdin and stdout, until they end.",
	}
}

// stdio is the pipe to the program that started this process. It remains open until
// this process ends.
type stdio struct {
	io.Reader
	io.Writer
}

func (stdio) Close() error { return nil }

// farEnd does what the origin requests until the pipe ends. Then its sessions end too,
// and unfinished files are removed.
func (p *program) farEnd(ctx context.Context, operands []string) error {
	if len(operands) > 0 {
		return args.UsageErrorf("gdrcp %s takes no operand", remote.FarEndCommand)
	}
	p.checkedStdout.ending = nil // it carries data, and ends with the pipe
	mux, talk, err := remote.Answer(ctx, stdio{p.stdin, p.stdout}, remote.Banner{Protocol: xfer.ProtocolVersion, Version: p.versionText()})
	var wish remote.Wish
	if err == nil {
		wish, err = talk.Asked()
	}
	if errors.Is(err, remote.ErrPipe) { // nobody can receive the error
		return &exitCodeError{exitError}
	}
	if err != nil {
		return err
	}
	input, given := io.Pipe()
	if wish.Audit == nil {
		input.Close() // nobody reads it
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		_ = talk.HearInput(ctx, given) // nobody is left to receive its error
		cancel()
	}()
	defer context.AfterFunc(ctx, func() { input.Close() })()
	go func() { // HearInput may be waiting for a reader of the input
		select {
		case <-mux.Done():
			cancel()
		case <-ctx.Done():
		}
	}()
	switch {
	case wish.Run != nil:
		err = talk.End(p.runFor(ctx, talk, wish.Run))
	case wish.Audit != nil:
		err = auditForOrigin(ctx, talk, wish.Audit, input)
	default:
		err = p.serveOrigin(ctx, mux, talk, wish.Serve)
	}
	input.Close()
	if err != nil && ctx.Err() == nil {
		err = talk.Refuse(lineOf(err), uint8(xfer.Classify(err)))
	}
	if err == nil {
		<-heard // the origin hangs up
	}
	return nil
}

// serveOrigin serves the holder of the origin's key until ctx ends.
func (p *program) serveOrigin(ctx context.Context, mux *remote.Mux, talk *remote.Conversation, asked *remote.Serve) error {
	offer, err := makeOfferUntil(ctx, asked.Sources)
	if err != nil {
		return err
	}
	only, err := grantFor(asked, offer)
	if err != nil {
		return err
	}
	rails, why := usableRails(p.verbs)
	wire, err := new(wireOptions).read(p.getenv)
	if err != nil {
		return err
	}
	cfg := xfer.ServerConfig{
		Wire: wire,
		Keys: xfer.OneKey(asked.Key, xfer.Admission{Only: only}), NoRails: why, Timeouts: p.timeouts, GPUs: p.gpus, Load: boundHeap,
		MaxSessions: farEndSessions, MaxMemory: farEndSessions * asked.SessionBytes,
	}
	if len(rails) > 0 {
		p.limitCPUs("verbs")
	}
	server := xfer.NewServer(cfg)
	heard := p.listenEverywhere(server, rails)
	offer.Machine = machineProof(asked.Key)
	offer.Addresses, offer.NoRails, offer.NoTCP = heard.at, cmp.Or(why, heard.noRails), heard.noTCP
	if _, err := server.Listen(tcp.NewOver(mux), mux.Addr(), rdma.Device{}); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := talk.Offer(offer); err != nil {
		return errors.Join(err, server.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	var answering sync.WaitGroup
	answering.Go(func() { tellOutcome(ctx, talk, only) })
	err = server.Serve(ctx)
	cancel()
	answering.Wait()
	return err
}

// tellOutcome answers when the origin asks how the copy ended.
func tellOutcome(ctx context.Context, talk *remote.Conversation, only *xfer.OneCopy) {
	select {
	case <-talk.OutcomeAsked():
	case <-ctx.Done():
		return
	}
	end, err := only.Ended(ctx)
	code, why := exitError, "nothing was copied"
	switch {
	case err != nil:
		return // the origin has gone
	case end == nil:
	case end.Err != nil:
		code, why = explain(end.Err, false).code, lineOf(end.Err)
	case end.Summary != nil:
		code, why = codeOfSummary(end.Summary), "not everything was copied"
	}
	_ = talk.Outcome(code, why) // if this fails, the pipe has ended, and the origin knows
}

// grantFor returns the copy that the origin requests, with the paths on this host. The holder of
// the key may do nothing else. In a copy between two remote hosts, the holder is a third host.
func grantFor(asked *remote.Serve, offer *remote.Offer) (*xfer.OneCopy, error) {
	paths := offeredPaths(asked.Sources, offer)
	if asked.Copy.Push {
		paths = []string{remote.AtHome(asked.Copy.Dest, offer.Home)}
	}
	g, err := xfer.NewGrant(asked.Copy.Terms, paths)
	if err != nil || len(asked.Copy.From) == 0 {
		return g, err
	}
	from := make([]string, len(asked.Copy.From))
	for i, source := range asked.Copy.From {
		from[i] = remote.AtHome(source, "/") // a home directory at any path contributes no name
	}
	g.OnlyFrom(from, len(from) == 1 && pattern.Is(from[0]), func(given, name string) bool { return remote.Believe(given, []string{name}) == nil })
	return g, nil
}

// farEndSessions is the number of concurrent sessions of a remote process: the copy's, and an
// earlier one whose path was abandoned, which the remote process may not have noticed yet.
const farEndSessions = 2

// makeOfferUntil is makeOffer, but returns when ctx ends, so that a hanging file system does not
// keep the program from ending. The goroutine that waits for the file system ends with the process.
func makeOfferUntil(ctx context.Context, sources []string) (*remote.Offer, error) {
	type result struct {
		offer *remote.Offer
		err   error
	}
	made := make(chan result, 1)
	go func() {
		offer, err := makeOffer(sources)
		made <- result{offer, err}
	}()
	select {
	case r := <-made:
		return r.offer, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// makeOffer returns what the origin's paths mean on this host.
func makeOffer(sources []string) (*remote.Offer, error) {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil, err
	}
	offer := &remote.Offer{Home: home}
	for _, pattern := range sources {
		names, err := remote.Expand(pattern, home)
		if err != nil {
			return nil, err
		}
		offer.Expanded = append(offer.Expanded, names)
	}
	return offer, nil
}

// runFor copies from this host to another remote process on behalf of the origin, and
// returns the exit code.
func (p *program) runFor(ctx context.Context, talk *remote.Conversation, run *remote.Run) int {
	far := &program{
		version: p.version,
		stdin:   emptyReader{}, stdout: talk.Stdout(), stderr: talk.Stderr(), getenv: p.getenv, started: time.Now(),
		verbs: p.verbs, tcp: p.tcp, gpus: p.gpus, timeouts: p.timeouts, relayed: run,
	}
	args := append([]string{"gdrcp"}, run.Args...)
	args = append(append(args, "--"), run.Sources...)
	return far.run(ctx, append(args, run.Dest))
}

// emptyReader is an empty standard input.
type emptyReader struct{}

func (emptyReader) Read([]byte) (int, error) { return 0, io.EOF }
