package chunker

// pieceChecker compares pieces of a partial file with their digests, those behind what is
// trusted, in the order of the journal.
type pieceChecker struct {
	resumption *resumption
	from       *diskReader  // nil until needed
	ahead      *digestAhead // likewise
	bad        bool         // a piece is not what its digest says
	err        error        // the file could not be read
}

func (r *resumption) newChecker() *pieceChecker { return &pieceChecker{resumption: r} }

func (c *pieceChecker) close() {
	if c.ahead != nil {
		c.ahead.close()
	}
	if c.from != nil {
		c.from.close()
	}
}

// begin begins to read the pieces that the journal has behind what is trusted.
func (c *pieceChecker) begin() {
	r := c.resumption
	if c.from, c.err = newDiskReader(r.temp.fd); c.err != nil {
		return
	}
	file := pieceFile{c.from, r.partial.Hash, r.partial.PieceBytes, r.temp.size}
	c.ahead = startDigests(file, r.temp.sink.places, func(add func(first, pieces uint64, hole bool) bool) {
		at := uint64(0)
		for j := r.records(); at < r.claimed; {
			rec, err := j.next()
			if err != nil {
				return // whoever reads it in step meets the same
			}
			for _, run := range rec.runs {
				if rec.kind != recordPieces || at >= r.claimed {
					break
				}
				from, end := max(at, r.trusted), min(at+run.Pieces, r.claimed)
				if from < end && !file.addRun(from, PieceRun{Digest: run.Digest, Pieces: end - from}, add) {
					return
				}
				at = end
			}
		}
	})
}

// addRun asks for the pieces of a run, from the piece first on.
func (f *pieceFile) addRun(first uint64, run PieceRun, add func(first, pieces uint64, hole bool) bool) bool {
	off := int64(first) * f.pieceBytes
	end := min(off+int64(run.Pieces)*f.pieceBytes, f.size)
	if run.Pieces > 1 && run.Digest == f.zeroPiece(first) && f.from.dataFrom(off, end) >= end {
		return add(first, run.Pieces, true) // reading it would take as long as if it were there
	}
	for n := range run.Pieces {
		if !add(first+n, 1, false) {
			return false
		}
	}
	return true
}

// matching returns how many pieces of a run, from the piece first on, are what their
// digest says.
func (c *pieceChecker) matching(first uint64, run PieceRun) (good uint64) {
	if c.ahead == nil && c.err == nil {
		c.begin()
	}
	for good < run.Pieces && !c.bad && c.err == nil {
		p := c.ahead.next()
		if c.err = c.resumption.temp.sink.watch.step(); c.err != nil {
			break
		}
		if p == nil || p.first != first+good {
			c.err = errJournal // it could be read a moment ago, and another time it may be
			break
		}
		if c.err = p.err; c.err == nil {
			if c.bad = p.digest != run.Digest; !c.bad {
				good += p.pieces
			}
		}
	}
	return good
}
