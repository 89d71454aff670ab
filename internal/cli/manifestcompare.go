package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"gdrcp/internal/audit"
	"gdrcp/internal/cli/args"
	"gdrcp/manifest"
)

// show prints a manifest in readable form, without the digests of pieces. Its lines are
// those of the manifest, except that a file of several pieces has only its root.
func (m *manifestRun) show(ctx context.Context, operands []string) error {
	r, err := m.openManifest(ctx, operands[0])
	if err != nil {
		return err
	}
	defer r.Close()
	ctx, stop := m.printingContext(ctx)
	defer stop()
	h := r.Header()
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		if err := r.SkipPieces(); err != nil && !errors.Is(err, manifest.ErrVoid) {
			return err
		} else if err == nil && !m.quiet {
			m.tell("%s", entryText(e, h.Algorithm))
		}
	}
	s := r.Summary()
	m.tell("%d entries, %s in pieces of %s, root %s %x, meta root %x", s.Entries, bytesText(float64(s.Bytes), 1), sizeText(h.PieceBytes), h.Algorithm, s.Content, s.Meta)
	return nil
}

// entryText returns an entry in the form that show prints. Names that could be misread
// are quoted, so no two entries have the same line.
func entryText(e *manifest.Entry, a manifest.Algorithm) string {
	switch e.Type {
	case manifest.File:
		return fmt.Sprintf("f %04o %d %s %s", e.Mode, e.Size, a.Hex(e.Root), args.Quote(e.Path))
	case manifest.Symlink:
		return fmt.Sprintf("l %04o %s -> %s", e.Mode, args.Quote(e.Path), args.Quote(e.Target))
	}
	return fmt.Sprintf("d %04o %s", e.Mode, args.Quote(e.Path))
}

func (m *manifestRun) diff(ctx context.Context, operands []string) error {
	if operands[0] == "-" && operands[1] == "-" {
		return args.UsageErrorf("only one of the manifests can come from standard input")
	}
	a, err := m.openManifest(ctx, operands[0])
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := m.openManifest(ctx, operands[1])
	if err != nil {
		return err
	}
	defer b.Close()
	ctx, stop := m.printingContext(ctx)
	defer stop()
	changes := int64(0)
	identical, err := manifest.Diff(a, b, func(c manifest.Change) error {
		changes++
		if m.json {
			m.events.emit(differenceEvent{"difference", c.Path(), changeKind(&c), c.Differs.String(), rangeFields(c.Ranges), ""})
		} else {
			m.tell("%s", changeText(&c))
		}
		return context.Cause(ctx)
	})
	if err != nil {
		return err
	}
	if m.json {
		m.events.emit(comparedEvent{"compared", identical, changes})
	} else if !m.quiet {
		m.console.line("%s, root %s %x and %x", count(changes, "difference", "differences"), a.Header().Algorithm, a.Summary().Content, b.Summary().Content)
	}
	if !identical {
		return &exitCodeError{exitIntegrity}
	}
	return nil
}

func changeKind(c *manifest.Change) string {
	switch {
	case c.A == nil:
		return "added"
	case c.B == nil:
		return "removed"
	}
	return "changed"
}

// changeText returns a change in a line: + added, - removed, ~ changed.
func changeText(c *manifest.Change) string {
	path := strconv.Quote(c.Path())
	switch {
	case c.A == nil:
		return "+ " + path
	case c.B == nil:
		return "- " + path
	}
	text := "~ " + path + ": " + c.Differs.String()
	if c.Differs&manifest.SizeDiffers != 0 {
		text += fmt.Sprintf(", size %d and %d", c.A.Size, c.B.Size)
	}
	if len(c.Ranges) > 0 {
		text += ", bytes " + audit.RangesText(c.Ranges)
	}
	return text
}
