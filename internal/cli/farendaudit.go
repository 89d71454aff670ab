package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"gdrcp/internal/audit"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/filter"
	"gdrcp/internal/remote"
	"gdrcp/manifest"
	"gdrcp/xfer"
)

// hasReadEvery is how often a remote process reports its progress.
const hasReadEvery = 500 * time.Millisecond

// auditForOrigin reads files of this host at the origin's request and reports their
// contents. It does not listen; all reports go to the origin over the pipe. input is
// the manifest to compare with, or the list of the only names to read.
func auditForOrigin(ctx context.Context, talk *remote.Conversation, asked *remote.Audit, input io.Reader) error {
	home, err := os.UserHomeDir()
	if err != nil {
		return err
	}
	o, err := auditOptions(asked)
	if err != nil {
		return err
	}
	if asked.Listed {
		if o.Names, err = readNames(input, true); err != nil {
			return err
		}
		defer o.Names.Close()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o.Report = func(f audit.Finding) {
		if err := talk.Found(encodeFinding(&f)); err != nil {
			cancel(err)
		}
	}
	tally := &xfer.Tally{}
	o.Tally = tally
	end := reportProgress(talk, tally)
	sum, err := runAudit(ctx, talk, asked, o, remote.AtHome(asked.Path, home), input)
	end()
	if err != nil {
		return err
	}
	return talk.HasAudited(&remote.Audited{Files: sum.Files, Dirs: sum.Dirs, Links: sum.Links, Bytes: sum.Bytes, LeftOut: sum.LeftOut})
}

// runAudit reads the file or tree at path.
func runAudit(ctx context.Context, talk *remote.Conversation, asked *remote.Audit, o audit.Options, path string, input io.Reader) (*audit.Summary, error) {
	if asked.Verify {
		r, err := manifest.NewReader(input)
		if err != nil {
			return nil, err
		}
		defer r.Close()
		return audit.Verify(ctx, r, path, o)
	}
	h := manifest.Header{PieceBytes: asked.PieceBytes}
	var err error
	if h.Algorithm, err = manifest.ParseAlgorithm(asked.Hash); err != nil {
		return nil, err
	}
	out, err := manifest.NewWriter(talk.Manifest(), h)
	if err != nil {
		return nil, err
	}
	return audit.Create(ctx, path, out, h, o)
}

// auditOptions returns the options for the origin's request.
func auditOptions(asked *remote.Audit) (o audit.Options, err error) {
	p := filter.Parser{Open: func(name string) (io.ReadCloser, error) {
		return nil, fmt.Errorf("a rule that names the file %s", args.Quote(name)) // the origin has read such files
	}}
	for _, rule := range asked.Rules {
		if err := p.Filter(rule); err != nil {
			return o, err
		}
	}
	o = audit.Options{Follow: asked.Follow, Preserve: asked.Preserve, Recursive: asked.Recursive, Rules: p.Rules()}
	return o, nil
}

// encodeFinding encodes a finding for the origin.
func encodeFinding(f *audit.Finding) *remote.Finding {
	out := &remote.Finding{Kind: kindText(f.Kind), Path: []byte(f.Path), Differs: uint8(f.Differs), Text: []byte(f.Text)}
	for _, r := range f.Ranges {
		out.Ranges = append(out.Ranges, [2]int64{r.Offset, r.End})
	}
	return out
}

// reportProgress reports progress to the origin until the returned function is called.
func reportProgress(talk *remote.Conversation, of *xfer.Tally) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(hasReadEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				p := of.Read()
				_ = talk.HasRead(remote.Tally{Bytes: p.Bytes, Files: p.Files, TotalBytes: p.TotalBytes, TotalKnown: p.TotalKnown}) // if this cannot be sent, neither can the rest
			case <-stop:
				return
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}
