package xfer

import "gdrcp/xfer/internal/wire"

// OnlyOtherWays says that the copy cannot continue where an attempt has ended. Another attempt
// then begins it anew, over another device or transport, if that has failed and the attempt has
// left nothing behind that a later one cannot account for. Call it before the first attempt.
func (t *Tries) OnlyOtherWays() { t.once = true }

// IsLast says whether the caller makes another attempt only over another device or transport.
// Call it before each attempt.
func (t *Tries) IsLast(last bool) { t.last = last }

// mayBeginAnew reports whether the copy may begin anew after an attempt that failed with a role,
// which is nil if the ends had not agreed. The session's goroutines have ended. A manifest
// that is written needs the digests of all files, so a later attempt compares what this one has
// published, which nobody knows for certain. All other copies of one attempt must not have begun:
// bytes of a stream are read or written once, nobody knows how much a sink has deleted of what it
// may delete, and a file that is half written must not be kept.
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

// beginsAnew has a later attempt compare files by content that an earlier one may have
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

// announcesLate reports whether the source announces entries only when both ends have their
// rings: as soon as the sink knows an entry, it may delete what is in the entry's place, and how
// much it may delete is bounded.
func (t *Tries) announcesLate(p *wire.Terms) bool { return t != nil && t.once && p.MaxDelete != 0 }

// keepsUnread reports whether the destination keeps files by their size, name or age.
func (o *Options) keepsUnread() bool {
	return o.SizeOnly || o.IgnoreExisting || o.Update || o.AppendVerify
}
