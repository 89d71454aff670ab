package main

import (
	"context"
	"errors"
	"io"
	"slices"

	"gdrcp/chunker"
	"gdrcp/xfer"
)

// streamName is the operand that stands for standard input or output. A file of
// that name is ./-.
const streamName = "-"

// stream is standard input or output, opened when it is asked for.
type stream func() (*chunker.Pipe, error)

func standardInput() (*chunker.Pipe, error) { return chunker.NewInput(0, "standard input") }

func standardOutput() (*chunker.Pipe, error) { return chunker.NewOutput(1, "standard output") }

// isStream reports whether this machine's end of the copy is a stream.
func (p *plan) isStream() (bool, error) {
	switch {
	case p.from != nil: // none of the ends is this machine
		return false, nil
	case p.push && len(p.sources) > 1 && slices.Contains(p.sources, streamName):
		return false, usageError("standard input (-) has no name to copy it under beside other sources: copy it alone")
	case !p.push && p.dst == streamName && len(p.sources) > 1:
		return false, usageError("standard output (-) takes one file: copy the others one after the other")
	case p.push:
		return p.sources[0] == streamName, nil
	}
	return p.dst == streamName, nil
}

// transfer copies between this machine and the server of the plan.
func (c *copying) transfer(ctx context.Context, client *xfer.Client, p *plan, o xfer.Options) (*xfer.Summary, error) {
	isStream, err := p.isStream()
	switch {
	case err != nil: // a pattern of sources stands for several
		return nil, err
	case isStream:
		return c.copyStream(ctx, client, p, o)
	case p.push:
		return client.Push(ctx, p.sources, p.endpoint, p.dst, o)
	}
	return client.Pull(ctx, p.endpoint, p.sources, p.dst, o)
}

// copyStream copies from standard input or to standard output.
func (c *copying) copyStream(ctx context.Context, client *xfer.Client, p *plan, o xfer.Options) (sum *xfer.Summary, err error) {
	open := c.output
	if p.push {
		open = c.input
	}
	s, err := open()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if p.push {
		return client.PushStream(ctx, s, p.endpoint, p.dst, o)
	}
	return client.PullStream(ctx, p.endpoint, p.sources[0], s, o)
}

// eventsTo is where --json writes: standard error where standard output takes
// what is copied. line is nil where the arguments could not be put in order.
func (p *program) eventsTo(line *ordered, args []string) io.Writer {
	if line != nil {
		args = line.args // the operands are last
		if line.command.Name != copyName || p.relayed != nil {
			return p.stdout
		}
	}
	if len(args) > 0 && args[len(args)-1] == streamName {
		return p.stderr
	}
	return p.stdout
}
