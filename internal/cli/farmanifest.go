package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"gdrcp/internal/audit"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/remote"
	"gdrcp/manifest"
	"gdrcp/xfer"
)

// parsePlace parses the PATH of a manifest command. The path is on this machine if
// where is nil, and on that host otherwise.
func (m *manifestRun) parsePlace(operand string) (where *sshHost, path string, err error) {
	t, err := parseTarget(operand)
	if err == nil && t.remote && t.ssh == nil {
		err = args.UsageErrorf("%s: a server of rdma:// neither makes nor checks manifests: use ssh (%s), or copy with --write-manifest or --manifest",
			args.Quote(operand), args.Quote(t.endpoint.Host+":PATH"))
	}
	return t.ssh, t.path, err
}

// createAt makes the manifest of a file or tree, on this machine if where is nil and on
// that host otherwise.
func (m *manifestRun) createAt(ctx context.Context, where *sshHost, path string, out *manifest.Writer) (*audit.Summary, error) {
	if where == nil {
		return audit.Create(ctx, path, out, m.header, m.audit)
	}
	sum := &audit.Summary{Header: m.header}
	text, arriving := io.Pipe()
	taken := make(chan error, 1)
	go func() {
		err := m.receiveManifest(out, text, sum)
		text.CloseWithError(err)
		taken <- err
	}()
	asked := remote.Audit{Path: path, Hash: m.header.Algorithm.String(), PieceBytes: m.header.PieceBytes, Listed: m.audit.Names != nil, Recursive: m.audit.Recursive}
	var names func(io.Writer) error
	if asked.Listed {
		names = func(w io.Writer) error { return writeNames(w, m.audit.Names) }
	}
	_, lost := m.askFarEnd(ctx, *where, &asked, names, arriving, sum)
	arriving.CloseWithError(lost) // a nil error means the end
	wrong := <-taken
	switch {
	case lost != nil && !errors.Is(lost, wrong): // the manifest ends when the remote process ends
		return nil, lost
	case wrong == nil:
		return sum, nil
	case isBadManifest(wrong):
		return nil, fmt.Errorf("%s: %w: %w", where.host, xfer.ErrProtocol, wrong)
	}
	return nil, wrong
}

// receiveManifest writes a remote manifest to out and sums up its content. The manifest
// ends in the same way as a local one.
func (m *manifestRun) receiveManifest(out *manifest.Writer, text io.Reader, sum *audit.Summary) error {
	r, err := manifest.NewReader(text)
	if err != nil {
		return err
	}
	defer r.Close()
	if r.Header() != m.header {
		return fmt.Errorf("%w: its algorithm or piece size is not the requested one", manifest.ErrFormat)
	}
	if err := manifest.Copy(out, r, sum.Book); err != nil {
		return err
	}
	s, err := out.Close()
	sum.Content, sum.Meta = s.Content, s.Meta
	return err
}

// verifyAt compares a file or tree with a manifest, and closes the manifest. The tree
// is on this machine if where is nil, and on that host otherwise.
func (m *manifestRun) verifyAt(ctx context.Context, where *sshHost, path string, r *manifest.Reader) (*audit.Summary, error) {
	if where == nil {
		defer r.Close()
		return audit.Verify(ctx, r, path, m.audit)
	}
	sum := &audit.Summary{Header: r.Header()}
	// give may still be waiting for standard input when the remote process ends. The
	// first of give and the deferred function takes r.
	var taken atomic.Bool
	defer func() {
		if taken.CompareAndSwap(false, true) {
			r.Close()
		}
	}()
	give := func(w io.Writer) error {
		if !taken.CompareAndSwap(false, true) {
			return context.Canceled
		}
		defer r.Close()
		out, err := manifest.NewWriter(w, r.Header())
		if err == nil {
			err = manifest.Copy(out, r, nil)
		}
		if err == nil {
			_, err = out.Close()
		}
		return err
	}
	done, err := m.askFarEnd(ctx, *where, &remote.Audit{Path: path, Verify: true, Preserve: m.audit.Preserve}, give, nil, sum)
	if err != nil {
		return nil, err
	}
	want := r.Summary()
	sum.Content, sum.Meta = want.Content, want.Meta
	sum.Files, sum.Dirs, sum.Links, sum.Bytes, sum.LeftOut = done.Files, done.Dirs, done.Links, done.Bytes, done.LeftOut
	if !isVerdictOn(sum, want) {
		return nil, fmt.Errorf("%s: %w: the verdict is about other entries than the manifest has", where.host, xfer.ErrProtocol)
	}
	return sum, nil
}

// isVerdictOn reports whether a verdict counts every entry of a manifest once. An
// unreadable entry may or may not be in the manifest.
func isVerdictOn(s *audit.Summary, want manifest.Summary) bool {
	left := want.Entries
	for _, told := range []int64{s.Files, s.Dirs, s.Links, s.Bad, s.Missing, s.LeftOut} {
		if told > left {
			return false
		}
		left -= told
	}
	return left <= s.Unreadable && s.Bytes <= want.Bytes
}

// askFarEnd makes a gdrcp on the host read files, and handles its reports; findings go
// to sum. Errors from the host name it.
func (m *manifestRun) askFarEnd(ctx context.Context, where sshHost, asked *remote.Audit, input func(io.Writer) error, text io.Writer, sum *audit.Summary) (*remote.Audited, error) {
	asked.Follow = m.audit.Follow
	for i := range m.audit.Rules {
		asked.Rules = append(asked.Rules, m.audit.Rules[i].String())
	}
	link, err := m.connectFarEnd(ctx, &m.ssh, where, func(what string) {
		if !m.quiet && !m.json {
			m.console.line("gdrcp: %s", what)
		}
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", where.host, err)
	}
	f := &farEnd{Link: link, where: where}
	defer f.Close()
	done, err := link.Talk.AskAudit(ctx, asked, input, remote.AuditListener{
		Manifest: text,
		Finding: func(told *remote.Finding) error {
			finding, err := decodeFinding(told)
			if err == nil {
				sum.Find(finding, m.audit.Report)
			}
			return err
		},
		Tally: func(t remote.Tally) {
			m.tally.Set(xfer.Progress{Bytes: t.Bytes, Files: t.Files, TotalBytes: t.TotalBytes, TotalKnown: t.TotalKnown, MovedBytes: t.Bytes})
		},
	})
	var own *remote.InputError
	var refused *remote.RefusedError
	switch {
	case err == nil:
		f.Leave()
		return done, nil
	case errors.As(err, &own):
		return nil, own.Err
	case errors.As(err, &refused):
		return nil, &xfer.RemoteError{Peer: where.host, Class: xfer.ErrorClass(refused.Class), Text: refused.Text}
	}
	return nil, fmt.Errorf("%s: %w", where.host, f.reason(ctx, err))
}

// decodeFinding decodes a remote finding. The code that prints its text makes it safe
// for terminals.
func decodeFinding(told *remote.Finding) (f audit.Finding, err error) {
	kind := slices.Index(findingKinds(), told.Kind)
	differs := manifest.Difference(told.Differs)
	if kind <= 0 || differs&^manifest.AllDiffers != 0 {
		return f, fmt.Errorf("%w: unknown finding %q with differences %#x", xfer.ErrProtocol, told.Kind, told.Differs)
	}
	f = audit.Finding{Kind: audit.Kind(kind), Path: string(told.Path), Differs: differs, Text: string(told.Text)}
	for _, r := range told.Ranges {
		f.Ranges = append(f.Ranges, manifest.ByteRange{Offset: r[0], End: r[1]})
	}
	return f, nil
}
