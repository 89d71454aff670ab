package wire

import (
	"encoding/binary"
	"fmt"
	"math"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// Hello is the client's request and, as far as the fields apply, the server's answer.
type Hello struct {
	Terms   Terms
	Paths   []string   // push: the destination; pull: the sources
	GPU     uint64     // the requested location of the server's slots: see GPUWish
	GPUName string     // the GPU for GPUNamed, as --gpu names it
	Into    *IntoPlace // the destination directory, from the sink; nil if the sink does not send it
	// AsksCost: the client requests the cost of the session for the server. A server that
	// does not know the field sends nothing.
	AsksCost bool
	// Unkept: this end supports MsgUnkept.
	Unkept bool
	// Rails: the maximum number of rails of the session, as far as this end knows. 0 means
	// that this end does not support slots that are near to a rail, and must not be sent
	// them.
	Rails int
	// Warnings: this end supports MsgWarning.
	Warnings bool
	// Root identifies the directory at the server: in a welcome that of this session, in
	// the hello of a later attempt that of the previous attempt (dest.Sink.RootID). It
	// is empty if the sender does not know it.
	Root string
	// Replaced: this end knows that with FlagWhole a sink reports what is lost with the
	// directory that it replaces, and does not replace directories of others unless asked.
	// An end that does not know the field does neither.
	Replaced bool
	// WholeRing: the client has another device to try if the server cannot make its ring
	// with all slots, and accepts no smaller one.
	WholeRing bool
	// Copy identifies the copy and its attempt, so that a sink runs one attempt at a time.
	// It is zero if the client makes no other attempt, or does not know the field.
	Copy CopyAttempt
}

// CopyAttempt identifies one attempt of a copy.
type CopyAttempt struct {
	ID      fileset.StageID // identifies the copy
	Attempt uint32          // later attempts have higher numbers
}

// copyAttemptBytes is the length of an encoded CopyAttempt.
const copyAttemptBytes = len(fileset.StageID{}) + 4

// Encode returns the body of MsgHello and MsgWelcome.
func (h *Hello) Encode() []byte {
	var w Writer
	w.Uint(tagMode, uint64(h.Terms.Mode))
	w.Uint(tagChunk, uint64(h.Terms.ChunkBytes))
	w.Uint(tagPiece, uint64(h.Terms.PieceBytes))
	w.Uint(tagHash, uint64(h.Terms.Hash))
	w.Uint(tagSlots, uint64(h.Terms.Slots))
	w.Uint(tagQPs, uint64(h.Terms.QPs))
	w.Uint(tagCodec, uint64(h.Terms.Codec))
	w.Uint(tagFlags, h.Terms.Flags)
	for _, p := range h.Paths {
		w.Str(TagPath, p)
	}
	if h.Terms.Name != "" {
		w.Str(TagName, h.Terms.Name)
	}
	if h.GPUName != "" {
		w.Str(tagGPUName, h.GPUName)
	}
	if h.GPU != 0 {
		w.Uint(tagGPU, h.GPU)
	}
	if h.Terms.MaxDelete != 0 {
		w.Uint(tagMaxDelete, h.Terms.MaxDelete)
	}
	h.Terms.Sizes.appendTo(&w)
	if h.Terms.IO != fileset.IOAuto {
		w.Uint(tagIO, uint64(h.Terms.IO))
	}
	if h.Terms.Transfers != 0 {
		w.Uint(tagTransfers, uint64(h.Terms.Transfers))
	}
	if h.Terms.Settled != "" {
		w.Str(tagSettled, h.Terms.Settled)
	}
	if h.Terms.Has(FlagWhole) {
		w.Str(tagStage, string(h.Terms.Stage[:]))
	}
	if h.Terms.PartialDir != "" {
		w.Str(tagPartialDir, h.Terms.PartialDir)
	}
	h.Into.appendTo(&w)
	if h.AsksCost {
		w.Uint(tagAsksCost, 1)
	}
	if h.Unkept {
		w.Uint(tagUnkept, 1)
	}
	if h.Warnings {
		w.Uint(tagWarnings, 1)
	}
	if h.Rails != 0 {
		w.Uint(tagRails, uint64(h.Rails))
	}
	if h.Root != "" {
		w.Str(tagRoot, h.Root)
	}
	if h.Replaced {
		w.Uint(tagReplaced, 1)
	}
	if h.WholeRing {
		w.Uint(tagWholeRing, 1)
	}
	if h.Copy != (CopyAttempt{}) {
		w.Str(tagCopy, string(binary.BigEndian.AppendUint32(h.Copy.ID[:], h.Copy.Attempt)))
	}
	return w.Buf
}

// helloBound returns the maximum of an integer field of a hello in any mode. A larger
// value is refused before any conversion or multiplication.
func helloBound(tag byte) (most uint64, ok bool) {
	switch tag {
	case tagMode, tagHash:
		return math.MaxUint8, true
	case tagChunk:
		return MaxChunkBytes, true
	case tagPiece:
		return manifest.MaxPieceBytes, true
	case tagSlots:
		return MaxSlots, true
	case tagQPs:
		return MaxQPs, true
	case tagCodec:
		return uint64(CompressAuto), true
	case tagFlags:
		return flagsKnown, true
	case tagGPU:
		return uint64(GPUNamed), true
	case tagIO:
		return uint64(fileset.IOBuffered), true
	case tagTransfers:
		return MaxTransfers, true
	case tagMinFile:
		return math.MaxInt64, true
	case tagAsksCost, tagUnkept, tagWholeRing, tagWarnings, tagReplaced:
		return 1, true
	case tagRails:
		return MaxLinks, true
	case tagMaxDelete, tagMaxFile:
		return math.MaxInt64 + 1, true
	}
	return 0, false
}

func (h *Hello) field(tag byte, v []byte) error {
	if most, ok := helloBound(tag); ok {
		u, err := DecodeUint(tag, v)
		if err == nil && (u > most || tag == tagFlags && u&^flagsKnown != 0) {
			err = fmt.Errorf("%w: field %#x is %d, which is out of range", ErrProtocol, tag, u)
		}
		if tag == tagIO && u == retiredRegistered {
			err = fmt.Errorf("%w: --io registered, which this version no longer has", ErrProtocol)
		}
		if err == nil {
			h.set(tag, u)
		}
		return err
	}
	switch tag {
	case TagPath:
		h.Paths = append(h.Paths, string(v))
	case TagName:
		h.Terms.Name = string(v)
	case tagGPUName:
		h.GPUName = string(v)
	case tagSettled:
		h.Terms.Settled = string(v)
		return checkSettled(h.Terms.Settled)
	case tagStage:
		if len(v) != len(h.Terms.Stage) {
			return fmt.Errorf("%w: a staging directory's id of %d bytes", ErrProtocol, len(v))
		}
		h.Terms.Stage = fileset.StageID(v)
	case tagPartialDir:
		h.Terms.PartialDir = string(v)
		return checkPartialDir(h.Terms.PartialDir)
	case tagRoot:
		if len(v) == 0 || len(v) > maxRootBytes {
			return fmt.Errorf("%w: the identity of a directory in %d bytes", ErrProtocol, len(v))
		}
		h.Root = string(v)
	case tagCopy:
		if len(v) != copyAttemptBytes {
			return fmt.Errorf("%w: an attempt of a copy in %d bytes", ErrProtocol, len(v))
		}
		id, attempt := v[:len(h.Copy.ID)], v[len(h.Copy.ID):]
		h.Copy = CopyAttempt{fileset.StageID(id), binary.BigEndian.Uint32(attempt)}
	case tagInto:
		into, err := DecodeInto(v)
		h.Into = into
		return err
	default:
		return unknownField(tag)
	}
	return nil
}

// set stores an integer that is within its bound.
func (h *Hello) set(tag byte, u uint64) {
	t := &h.Terms
	switch tag {
	case tagMode:
		t.Mode = Mode(u)
	case tagHash:
		t.Hash = manifest.Algorithm(u)
	case tagChunk:
		t.ChunkBytes = int(u)
	case tagPiece:
		t.PieceBytes = int64(u)
	case tagSlots:
		t.Slots = int(u)
	case tagQPs:
		t.QPs = int(u)
	case tagCodec:
		t.Codec = Compress(u)
	case tagFlags:
		t.Flags = u
	case tagGPU:
		h.GPU = u
	case tagIO:
		t.IO = fileset.IOMode(u)
	case tagTransfers:
		t.Transfers = int(u)
	case tagMaxDelete:
		t.MaxDelete = u
	case tagMinFile:
		t.Sizes.MinBytes = u
	case tagMaxFile:
		t.Sizes.MaxBytes = u
	case tagAsksCost:
		h.AsksCost = u == 1
	case tagUnkept:
		h.Unkept = u == 1
	case tagWarnings:
		h.Warnings = u == 1
	case tagReplaced:
		h.Replaced = u == 1
	case tagWholeRing:
		h.WholeRing = u == 1
	case tagRails:
		h.Rails = int(u)
	}
}

// The tags of a hello's fields.
const (
	tagMode      = 1 | MustUnderstand
	tagChunk     = 3 | MustUnderstand
	tagPiece     = 4 | MustUnderstand
	tagHash      = 5 | MustUnderstand
	tagSlots     = 6 | MustUnderstand
	tagQPs       = 7 | MustUnderstand
	tagCodec     = 8 | MustUnderstand
	tagFlags     = 9 | MustUnderstand
	TagPath      = 10 | MustUnderstand
	TagName      = 11 | MustUnderstand
	tagGPU       = 15 | MustUnderstand
	tagMaxDelete = 18 | MustUnderstand // with FlagDelete, if deleting is limited
	// tagInto is for a hello or welcome from the sink. It has the mark of the directory
	// that the copy goes into, and the name that the copy gets there. The name is empty if
	// the copy keeps the source's name, or only the contents are copied.
	tagInto    = 19
	tagGPUName = 20 | MustUnderstand
	tagIO      = 27 | MustUnderstand // the I/O mode in which the sink should write files
	tagMinFile = 21 | MustUnderstand // with FlagSizes: the minimum size of a file
	tagMaxFile = 22 | MustUnderstand // likewise the maximum size plus one; 0 for no limit
	tagSettled = 23 | MustUnderstand // the path up to which an earlier attempt has settled all files
	tagStage   = 24 | MustUnderstand // with FlagWhole
	// tagAsksCost, in a hello, requests the cost of the session for the server.
	tagAsksCost   = 25
	tagPartialDir = 26 | MustUnderstand // for a push: the sink's directory for partial files
	tagTransfers  = 28 | MustUnderstand // how many large files are transferred concurrently
	tagFarSlots   = 29                  // at the door only: see DoorWish
	tagFarQPs     = 30                  // likewise
	_             = 31                  // retired: the sender knew of regions of files
	tagRails      = 32
	_             = 33 // retired, also at the door: how many slots a ring might grow to
	tagRoot       = 34
	tagUnkept     = 37
	tagWholeRing  = 38
	tagWarnings   = 47
	tagReplaced   = 48
	tagCopy       = 49
)

// retiredRegistered is the number of the former mode --io registered.
const retiredRegistered = 4

// maxRootBytes bounds the identity of a directory.
const maxRootBytes = 64

// DecodeHello decodes a hello or a welcome. It checks each field in isolation.
func DecodeHello(b []byte) (h Hello, err error) {
	r := Reader{b}
	for {
		tag, v, ok, err := r.Next()
		if err != nil {
			return h, err
		}
		if !ok {
			return h, h.checkGPU()
		}
		if err := h.field(tag, v); err != nil {
			return h, err
		}
	}
}
