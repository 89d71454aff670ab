package xfer

import (
	"context"
	"fmt"
	"slices"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// streamPartBytes is how many bytes of a piece are written to a stream in one call. Each write
// counts as progress, even if the reader is slow.
const streamPartBytes = 64 << 10

// streamLander writes what arrives to a stream. It is the only worker of its sink. It verifies a
// piece immediately before it writes it. When a piece must be sent again, all later pieces wait:
// the rest of its chunk is sent again with it, and later chunks remain in their slots.
type streamLander struct {
	sink   *sink
	lander lander
	// owed are the extents that come next, from the one that is sent again to the end of its chunk:
	// pieces that were requested, and holes between them.
	owed []owedExtent
	// waiting are the chunks that are booked and in their slots, in order.
	waiting []waitingChunk
	// givenUp: a piece will not come, so nothing more is written.
	givenUp bool
	zeros   []byte
}

type owedExtent struct {
	wire.Extent
	tries int // how often it arrived damaged
}

type waitingChunk struct {
	a      flow.Filled
	header wire.ChunkHeader
}

// drainStream is drainSlots for a stream.
func (k *sink) drainStream(ctx context.Context) error {
	if err := k.Session.Link.AwaitRing(ctx); err != nil {
		return err
	}
	done := func() bool { return true }
	defer func() { done() }()
	begun := false
	w := streamLander{sink: k, lander: lander{sink: k}}
	w.lander.chunk.init()
	defer w.lander.unpack.Close()
	drained := k.drained
	for {
		var err error
		select {
		case <-k.receiver.Work.Ready:
			if !begun { // until then, another attempt may take the stream
				begun, done = true, context.AfterFunc(ctx, k.out.Interrupt)
			}
			err = w.arrived(ctx, k.receiver.Work.Next(nil))
		case <-drained:
			// What is owed may never come, because the file has ended.
			drained, w.owed = nil, nil
			err = w.landWaiting()
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx) // the end of ctx has interrupted the stream
		}
		if err != nil {
			return err
		}
	}
}

// arrived writes a chunk, or keeps it until the requested pieces have come. It then writes the
// chunks that it kept.
func (w *streamLander) arrived(ctx context.Context, a flow.Filled) error {
	r := wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation}
	done, err := w.sink.open(&w.lander.chunk, a, &r)
	if !done || err != nil {
		return err
	}
	if r.Again {
		w.sink.receiver.GiveBack(r)
		return nil
	}
	h := &w.lander.chunk.header
	if err := w.sink.Session.Limit.Wait(ctx, int64(h.StoredBytes), w.sink.tally.Step); err != nil {
		return err
	}
	if err := w.forgetEnded(); err != nil {
		return err
	}
	if len(w.owed) > 0 && !h.Repair {
		kept := *h
		kept.Extents = slices.Clone(h.Extents)
		w.waiting = append(w.waiting, waitingChunk{a, kept})
		w.sink.receiver.Park(1)
		return nil
	}
	if err := w.landChunk(h, a); err != nil {
		return err
	}
	if err := w.forgetEnded(); err != nil {
		return err
	}
	return w.landWaiting()
}

// landWaiting writes chunks that were kept, until another piece is requested again.
func (w *streamLander) landWaiting() error {
	for len(w.owed) == 0 && len(w.waiting) > 0 {
		next := w.waiting[0]
		w.waiting = slices.Delete(w.waiting, 0, 1)
		w.sink.receiver.Park(-1)
		if err := w.landChunk(&next.header, next.a); err != nil {
			return err
		}
	}
	return nil
}

// forgetEnded drops the owed extents of a file that has ended: nobody sends them again.
func (w *streamLander) forgetEnded() error {
	if len(w.owed) == 0 {
		return nil
	}
	e, err := w.sink.entry(w.owed[0].Entry)
	if err != nil {
		return err
	}
	if e != nil {
		if over, _ := e.hasEnded(); !over {
			return nil
		}
	}
	w.owed = nil
	return nil
}

// landChunk verifies and writes the chunk in a slot, and gives the slot back.
func (w *streamLander) landChunk(h *wire.ChunkHeader, a flow.Filled) error {
	r := wire.ReturnedSlot{Slot: uint32(a.Slot), Generation: a.Generation}
	plain, damaged, err := w.lander.plainOf(h, a)
	if err != nil {
		return err
	}
	err = w.lander.eachExtent(h, &r, func(e *sinkEntry, i int) (good bool, err error) {
		x := &h.Extents[i]
		var data []byte
		if !damaged && x.Brings() {
			data = plain[x.SlotOff:][:x.Length]
		}
		again, err := w.landPiece(h, e, x, data, damaged)
		return !again, err
	})
	if err != nil {
		return err
	}
	w.sink.receiver.GiveBack(r)
	return w.lander.drain()
}

// landPiece writes an extent, if it is the next one and intact. again says that the source must
// send it again. data is its bytes, unless the payload of the chunk was damaged.
func (w *streamLander) landPiece(h *wire.ChunkHeader, e *sinkEntry, x *wire.Extent, data []byte, damaged bool) (again bool, err error) {
	if over, _ := e.hasEnded(); over {
		w.owed = nil
		return false, nil
	}
	brings, err := w.sink.checkExtent(h, e, x)
	if x.Flags&wire.ExtGivenUp != 0 {
		// Do not write past a missing piece.
		w.owed, w.givenUp = nil, true
	}
	switch {
	case err != nil || w.givenUp:
		return false, err
	case h.Repair:
		if i, err := w.owedAt(e, x); i != 0 || err != nil {
			return i > 0, err // an earlier piece of this chunk was damaged again
		}
	case len(w.owed) > 0: // after a damaged piece of its chunk
		w.owed = append(w.owed, owedExtent{Extent: *x})
		return brings, nil
	default:
		w.owed = append(w.owed, owedExtent{Extent: *x})
	}
	if brings {
		good := !damaged
		if good {
			from := stat.Now()
			data, good = w.lander.verified(h, e, x, data)
			w.sink.Session.Spent(stat.Digests, from)
		}
		if !good {
			return w.damaged(e), nil
		}
		if err := w.write(data); err != nil {
			return false, err
		}
		if err := w.paid(e); err != nil {
			return false, err
		}
	}
	return false, w.payHoles(e)
}

// owedAt finds an extent that was sent again among those that the stream needs. The extent must be
// one of them and claim what was first claimed. If its claim differs, owedAt returns -1 and ends
// the entry.
func (w *streamLander) owedAt(e *sinkEntry, x *wire.Extent) (int, error) {
	i := slices.IndexFunc(w.owed, func(o owedExtent) bool { return o.Off == x.Off && o.Flags&wire.ExtHole == 0 })
	if i < 0 {
		return i, fmt.Errorf("%w: byte %d of %q sent again unasked", ErrProtocol, x.Off, e.Path)
	}
	if o := &w.owed[i]; o.Digest != x.Digest || o.Length != x.Length {
		w.sink.failEntry(e, Changed, fmt.Errorf("%q: %w", e.Path, errChangedFile))
		w.owed = nil
		return -1, nil
	}
	return i, nil
}

// damaged records that the next piece arrived damaged, and reports whether the source must send it
// again.
func (w *streamLander) damaged(e *sinkEntry) bool {
	w.sink.tally.AddRepairs(1)
	o := &w.owed[0]
	if o.tries++; o.tries <= flow.MaxResends {
		return true
	}
	w.sink.failEntry(e, Corrupt, fmt.Errorf("%q: bytes %d to %d did not verify in %d tries", e.Path, o.Off, o.Off+o.Length, o.tries))
	w.owed = nil
	return false
}

// paid books the next extent as written.
func (w *streamLander) paid(e *sinkEntry) error {
	x := w.owed[0].Extent
	w.owed = slices.Delete(w.owed, 0, 1)
	return w.sink.landed(e, &x)
}

// payHoles writes the holes that come next.
func (w *streamLander) payHoles(e *sinkEntry) error {
	for len(w.owed) > 0 && w.owed[0].Flags&wire.ExtHole != 0 {
		if w.zeros == nil {
			w.zeros = make([]byte, streamPartBytes)
		}
		for left := w.owed[0].Length; left > 0; left -= min(left, streamPartBytes) {
			if err := w.write(w.zeros[:min(left, streamPartBytes)]); err != nil {
				return err
			}
		}
		if err := w.paid(e); err != nil {
			return err
		}
	}
	return nil
}

// write writes verified bytes to the stream, with at least one call. It blocks until the reader
// accepts them.
func (w *streamLander) write(data []byte) error {
	for first := true; first || len(data) > 0; first = false {
		from := stat.Now()
		n, err := w.sink.out.Write(data[:min(len(data), streamPartBytes)])
		w.sink.Session.Spent(stat.Disk, from)
		if err != nil {
			return err
		}
		data = data[n:]
		w.sink.tally.Step()
	}
	return nil
}
