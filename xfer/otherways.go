package xfer

import "gdrcp/xfer/internal/wire"

// OnlyOtherWays says that the copy cannot resume after an attempt has ended. Another attempt then
// begins it again, over another device or transport, if the first one has failed and the attempt
// has left nothing that a later one cannot account for. Call it before the first attempt.
func (t *Tries) OnlyOtherWays() { t.once = true }

// IsLast says whether the caller makes another attempt only over another device or transport. Call
// it before each attempt.
func (t *Tries) IsLast(last bool) { t.last = last }

// mayBeginAnew reports whether the copy may begin again after an attempt that failed with a role,
// which is nil if the ends had not agreed. The session's goroutines have ended. A manifest that is
// written needs the digests of all files, so a later attempt compares the files that this one may
// have published. All other copies of one attempt must not have begun: bytes of a stream are read
// or written once, the number of a sink's deletions is unknown, and a file that is half written
// must not be kept.
func (t *Tries) mayBeginAnew(role conversation, o *Options) bool {
	switch r := role.(type) {
	case *source:
		switch {
		case r.stream != nil:
			return !r.stream.begun
		case o.MaxDelete != 0 && r.window.announced > 0:
			return false
		case r.sender.NextID == 0:
			return true
		}
	case *sink:
		switch {
		case !r.receiver.Begun && r.results.deletes.deleted == 0:
			return true
		case r.out != nil:
			return false
		}
	default:
		return true
	}
	t.comparesAnew = o.WriteManifest != "" && o.MaxDelete == 0 && !o.keepsUnread()
	return t.comparesAnew
}

// beginsAnew makes a later attempt compare by content the files that an earlier one may have
// published.
func (t *Tries) beginsAnew(p *wire.Terms) {
	if !t.comparesAnew {
		return
	}
	p.Flags &^= wire.FlagSameStays
	if !p.Has(wire.FlagWhole | wire.FlagDryRun) {
		p.Flags |= wire.FlagChecksum
	}
}

// announcesLate reports whether the source announces entries only when both ends have their rings:
// as soon as the sink knows an entry, it may delete what is in the entry's place, and the number of
// deletions is bounded.
func (t *Tries) announcesLate(p *wire.Terms) bool { return t != nil && t.once && p.MaxDelete != 0 }

// keepsUnread reports whether the destination keeps files by their size, name or age.
func (o *Options) keepsUnread() bool {
	return o.SizeOnly || o.IgnoreExisting || o.Update || o.AppendVerify
}
