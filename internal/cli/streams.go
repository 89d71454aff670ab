package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"gdrcp/chunker/dest"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/inherited"
	"gdrcp/internal/pattern"
	"gdrcp/xfer"
)

// streamName is the operand for standard input or output. A file of that name is ./-.
const streamName = "-"

// stream opens standard input or output when it is needed.
type stream func() (*dest.Pipe, error)

const inputName, outputName = "standard input", "standard output"

func standardInput() (*dest.Pipe, error) {
	if err := checkInherited(0, inputName, "</dev/null"); err != nil {
		return nil, err
	}
	return dest.NewInput(0, inputName)
}

func standardOutput() (*dest.Pipe, error) {
	if err := checkInherited(1, outputName, ">/dev/null"); err != nil {
		return nil, err
	}
	return dest.NewOutput(1, outputName)
}

// checkInherited refuses a stream that the program was started without. Go's runtime
// has replaced it by /dev/null, which is empty and accepts everything. instead is how
// the user can pass /dev/null in a shell on purpose.
func checkInherited(fd int, name, instead string) error {
	err := errClosed
	switch inherited.Look(fd) {
	case inherited.Given:
		return nil
	case inherited.Unsure:
		err = fmt.Errorf("%w, or /dev/null that is open for reading and writing", err)
	}
	return &hintedError{fmt.Errorf("open %s: %w", name, err), "if that is what you want, write " + instead}
}

// isStream reports whether the local end of the copy is a stream.
func (p *plan) isStream() (bool, error) {
	switch {
	case p.from != nil: // neither end is on this machine
		return false, nil
	case p.push && len(p.sources) > 1 && slices.Contains(p.sources, streamName):
		return false, args.UsageErrorf("standard input (-) has no name beside other sources: copy it alone")
	case !p.push && p.dst == streamName && len(p.sources) > 1:
		return false, args.UsageErrorf("standard output (-) takes one file: copy the others one after the other")
	case p.push:
		return p.sources[0] == streamName, nil
	}
	return p.dst == streamName, nil
}

// withServer copies between this machine and the server of the plan. Patterns keep the
// same matches in all attempts.
func (c *copyRun) withServer(ctx context.Context, p *plan, o xfer.Options) (*xfer.Summary, error) {
	client := c.client()
	p, err := c.expanded(ctx, client, p, o)
	if err != nil {
		return nil, err
	}
	return c.untilDone(ctx, o, func(o xfer.Options) (*xfer.Summary, error) { return c.transfer(ctx, client, p, o) })
}

// transfer copies between this machine and the server of the plan, in one attempt.
func (c *copyRun) transfer(ctx context.Context, client *xfer.Client, p *plan, o xfer.Options) (*xfer.Summary, error) {
	if c.log != nil {
		c.log.paths.set(p)
	}
	isStream, err := p.isStream()
	switch {
	case err != nil: // the sources are a pattern that matches several names
		return nil, err
	case isStream:
		return c.copyStream(ctx, client, p, o)
	case p.push:
		return client.Push(ctx, p.sources, p.endpoint, p.dst, o)
	}
	// A host that its user logs in to is trusted as much as this one.
	o.Privileged = o.Privileged || p.local || p.far != nil
	return client.Pull(ctx, p.endpoint, p.sources, p.dst, o)
}

// expanded returns the plan with the matches of patterns in a server's paths. A remote
// process has already sent them.
func (c *copyRun) expanded(ctx context.Context, client *xfer.Client, p *plan, o xfer.Options) (*plan, error) {
	if p.push || p.local || p.far != nil || !slices.ContainsFunc(p.sources, pattern.Is) {
		return p, nil
	}
	names, err := client.Expand(ctx, p.endpoint, p.sources, o)
	if err != nil {
		return nil, err
	}
	there := *p
	there.sources = slices.Concat(names...)
	return &there, nil
}

// openStream opens the local stream before anything is connected.
func (c *copyRun) openStream(p *plan) (err error) {
	open := c.output
	if p.push {
		open = c.input
	} else if p.descriptor > 1 {
		open = func() (*dest.Pipe, error) {
			return dest.NewOutput(p.descriptor, fmt.Sprintf("descriptor %d", p.descriptor))
		}
	}
	c.stream, err = open()
	return err
}

// closeStream closes the stream that openStream opened, if any.
func (c *copyRun) closeStream() error {
	if c.stream == nil {
		return nil
	}
	return c.stream.Close()
}

// copyStream copies from standard input or to standard output.
func (c *copyRun) copyStream(ctx context.Context, client *xfer.Client, p *plan, o xfer.Options) (*xfer.Summary, error) {
	if p.push {
		return client.PushStream(ctx, c.stream, p.endpoint, p.dst, o)
	}
	if p.descriptor > 0 { // named by a path, so what every copy keeps is not an error
		o.Recursive, o.Links, o.Perms, o.Times, o.Owner, o.Group, o.HardLinks, o.Xattrs, o.ACLs = false, false, false, false, false, false, false, false, false
	}
	return client.PullStream(ctx, p.endpoint, p.sources[0], c.stream, o)
}

// eventsTo returns the destination of --json: standard output, or standard error if standard output
// receives the copied data. line is nil if the arguments could not be put in order.
func (p *program) eventsTo(line *args.Line, argv []string) io.Writer {
	if line != nil {
		argv = line.Args // the operands are last
		if line.Command.Name != args.CopyName || p.relayed != nil {
			return p.stdout
		}
	}
	if len(argv) > 0 && isStandardOutput(argv[len(argv)-1]) {
		return p.stderr
	}
	return p.stdout
}
