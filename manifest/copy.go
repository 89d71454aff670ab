package manifest

import (
	"errors"
	"io"
)

// Copy copies the manifest that r reads to out, from its first entry to its last line,
// including void files. Only what r has checked is written. Copy calls seen, which may be
// nil, for every entry that a reader of out will get, once its Root is known. The caller
// then closes out. Errors are those of Reader and Writer: a fault in the text that r reads
// wraps the same errors as in Reader.
func Copy(out *Writer, r *Reader, seen func(e *Entry)) error {
	for {
		e, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = copyEntry(out, r, e)
		}
		switch {
		case errors.Is(err, ErrVoid):
		case err != nil:
			return err
		case seen != nil:
			seen(e)
		}
	}
}

// copyEntry writes r's current entry. ErrVoid: readers of out will drop the entry.
func copyEntry(out *Writer, r *Reader, e *Entry) error {
	if id, ok := r.Identity(); ok {
		out.Identify(id)
	}
	if e.Type != File || PieceCount(e.Size, r.header.PieceBytes) <= 1 {
		return out.WriteEntry(e)
	}
	if err := out.BeginFile(e); err != nil {
		return err
	}
	for {
		d, count, err := r.NextPiece()
		switch {
		case errors.Is(err, ErrVoid):
			if lost := out.VoidFile(); lost != nil {
				return lost
			}
			return err
		case errors.Is(err, io.EOF):
			return out.EndFile(e.Root)
		case err != nil:
			return err
		}
		if err := out.PieceRun(d, count); err != nil {
			return err
		}
	}
}
