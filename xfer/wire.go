package xfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"gdrcp/internal/trust"
	"gdrcp/manifest"
)

// errHeaderSum: the header's checksum does not match: the chunk is sent again.
var errHeaderSum = errors.New("chunk header damaged on the way")

// msgType is the kind of a control message.
type msgType uint8

// The control messages, and who sends them. docs/design/protocol.md has their bodies as
// tables. Those of the second group carry no sequence number: they are outside
// the window, and there are few of them.
const (
	msgHello   msgType = iota + 1 // client: what it wants
	msgWelcome                    // server: what it gets
	msgRing                       // sink: where its slots are
	msgEntries                    // source: the next entries, in order of path
	msgTotal                      // source: how much there is, as far as known
	msgPlan                       // sink: data of entries below this id may come
	msgCredit                     // sink: slots that are free again, extents wanted again
	msgResult                     // sink: what became of entries
	msgFail                       // source: why an entry could not be sent
	msgEnd                        // source: there are no more entries
	msgRoot                       // source: its roots
	msgDone                       // sink: its roots
	msgPing                       // bench: answer with a pong
	msgPong
	msgMemory // either: where its slots are, told where GPU memory was asked for

	msgAck msgType = iota + 0x3f // either: messages consumed so far
	msgHeartbeat
	msgAbort // either: the session is over, and why
)

// sequenced reports whether a message counts against the window.
func (t msgType) sequenced() bool { return t < 0x40 }

// frame header: 16 bytes before every message's body. The two together are
// sealed (trust.Sealer).
//
//	0 1 type
//	1 3 zero
//	4 4 messages of the other direction consumed so far, low 32 bits
//	8 8 sequence number in the session and direction, from 1; 0 outside the window
const frameBytes = 16

// msgBytes bounds a sealed control message. The longest body is an entry whose
// path and link target are of PATH_MAX bytes each.
const (
	msgBytes     = 9 << 10
	maxBodyBytes = msgBytes - frameBytes - trust.SealBytes
)

// The window: a peer may have this many sequenced messages not yet consumed by
// the other end. Consumption is told at the latest every ackEvery messages.
const (
	controlWindow = 32
	ackEvery      = 8
	// controlMargin is how many receives a queue pair needs beside one for
	// each slot: the window, the acks that can be under way for it, and
	// heartbeats, a probe and an abort.
	controlMargin = controlWindow + controlWindow/ackEvery + 28
)

// putFrame writes the frame header of a message, b, whose body is in place.
func putFrame(b []byte, t msgType, seq, consumed uint64) {
	clear(b[:frameBytes])
	b[0] = byte(t)
	binary.LittleEndian.PutUint32(b[4:], uint32(consumed))
	binary.LittleEndian.PutUint64(b[8:], seq)
}

type frame struct {
	typ      msgType
	consumed uint32
	seq      uint64
	body     []byte
}

// parseFrame takes a message apart.
func parseFrame(b []byte) (frame, error) {
	if len(b) < frameBytes || b[1]|b[2]|b[3] != 0 {
		return frame{}, fmt.Errorf("%w: message of %d bytes", ErrProtocol, len(b))
	}
	f := frame{typ: msgType(b[0]), consumed: binary.LittleEndian.Uint32(b[4:]), seq: binary.LittleEndian.Uint64(b[8:]), body: b[frameBytes:]}
	if (f.seq == 0) == f.typ.sequenced() {
		return frame{}, fmt.Errorf("%w: message %d with sequence number %d", ErrProtocol, f.typ, f.seq)
	}
	return f, nil
}

// mode is what a session is for.
type mode uint8

const (
	modePush   mode = iota + 1 // the client is the source
	modePull                   // the server is the source
	modeBench                  // the client is the source, of no files
	_                          // was a question, which the door answers now
	modePing                   // round trips
	modeExpand                 // what patterns of a pull stand for
)

// hello is the client's opening and, as far as the fields apply, the server's
// answer.
type hello struct {
	mode       mode
	chunkBytes uint64
	pieceBytes uint64
	hash       manifest.Algorithm // 0: no digests (bench only)
	slots      uint64
	qps        uint64
	codec      uint64 // what the source may use, see Compress
	flags      uint64
	paths      []string   // push: the destination; pull: the sources
	name       string     // base name of a single source
	gpu        uint64     // where the server is to have its slots: see gpuWish
	gpuName    string     // see placement
	sizes      fileSizes  // of the files that are transferred
	maxDelete  uint64     // one more than may be deleted; 0 for any number
	into       *intoPlace // where the copy goes, from the sink; nil where that is not told
}

// Flags of a hello.
const (
	flagRecursive = 1 << iota
	flagFollow
	flagModes
	flagNoFsync
	flagMustBeDir
	flagMany   // several sources
	flagFlush  // GPU memory is flushed after every batch
	flagDirect // the server's device must reach its GPU memory by itself
	flagsBasic = 1<<iota - 1
)

// flagsKnown are the flags that this version understands: those above, and
// those that stand beside what they are for.
const flagsKnown = flagsBasic | flagsMetadata | flagEncrypt | flagRules | flagListed | flagStream | flagGrowing | flagOneFileSystem | flagsOfSink

// Tags of a hello's fields.
const (
	tagMode  = 1 | mustUnderstand
	tagChunk = 3 | mustUnderstand
	tagPiece = 4 | mustUnderstand
	tagHash  = 5 | mustUnderstand
	tagSlots = 6 | mustUnderstand
	tagQPs   = 7 | mustUnderstand
	tagCodec = 8 | mustUnderstand
	tagFlags = 9 | mustUnderstand
	tagPath  = 10 | mustUnderstand
	tagName  = 11 | mustUnderstand
	tagGPU   = 15 | mustUnderstand
	// tagMaxDelete stands beside flagDelete where deleting is bounded.
	tagMaxDelete = 18 | mustUnderstand
	tagGPUName   = 20 | mustUnderstand
)

func (h *hello) encode() []byte {
	var w tlvWriter
	w.uint(tagMode, uint64(h.mode))
	w.uint(tagChunk, h.chunkBytes)
	w.uint(tagPiece, h.pieceBytes)
	w.uint(tagHash, uint64(h.hash))
	w.uint(tagSlots, h.slots)
	w.uint(tagQPs, h.qps)
	w.uint(tagCodec, h.codec)
	w.uint(tagFlags, h.flags)
	for _, p := range h.paths {
		w.str(tagPath, p)
	}
	if h.name != "" {
		w.str(tagName, h.name)
	}
	if h.gpuName != "" {
		w.str(tagGPUName, h.gpuName)
	}
	if h.gpu != 0 {
		w.uint(tagGPU, h.gpu)
	}
	if h.maxDelete != 0 {
		w.uint(tagMaxDelete, h.maxDelete)
	}
	h.sizes.appendTo(&w)
	h.into.appendTo(&w)
	return w.b
}

// uintField maps a tag to the integer field it sets, and the most that this may
// be in any mode: nothing that is beyond it gets as far as a conversion or a
// product.
func (h *hello) uintField(tag byte) (field *uint64, most uint64) {
	switch tag {
	case tagChunk:
		return &h.chunkBytes, MaxChunkBytes
	case tagPiece:
		return &h.pieceBytes, manifest.MaxPieceBytes
	case tagSlots:
		return &h.slots, MaxSlots
	case tagQPs:
		return &h.qps, MaxQPs
	case tagCodec:
		return &h.codec, uint64(CompressAuto)
	case tagFlags:
		return &h.flags, flagsKnown
	case tagGPU:
		return &h.gpu, uint64(gpuNamed)
	case tagMaxDelete:
		return &h.maxDelete, math.MaxInt64 + 1
	case tagMinFile:
		return &h.sizes.minBytes, math.MaxInt64
	case tagMaxFile:
		return &h.sizes.maxBytes, math.MaxInt64 + 1
	}
	return nil, 0
}

func decodeHello(b []byte) (h hello, err error) {
	r := tlvReader{b}
	for {
		tag, v, ok, err := r.next()
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

func (h *hello) field(tag byte, v []byte) error {
	if p, most := h.uintField(tag); p != nil {
		u, err := tlvUint(tag, v)
		if err == nil && (u > most || tag == tagFlags && u&^flagsKnown != 0) {
			err = fmt.Errorf("%w: field %#x is %d, which is out of range", ErrProtocol, tag, u)
		}
		if err == nil {
			*p = u
		}
		return err
	}
	switch tag {
	case tagMode, tagHash:
		u, err := tlvUint(tag, v)
		if err != nil || u > 255 {
			return fmt.Errorf("%w: field %#x is out of range", ErrProtocol, tag)
		}
		if tag == tagMode {
			h.mode = mode(u)
		} else {
			h.hash = manifest.Algorithm(u)
		}
	case tagPath:
		h.paths = append(h.paths, string(v))
	case tagName:
		h.name = string(v)
	case tagGPUName:
		h.gpuName = string(v)
	case tagInto:
		into, err := decodeInto(v)
		h.into = into
		return err
	default:
		return unknownField(tag)
	}
	return nil
}

// ringInfo is where a sink's slots are, in msgRing: fixed, little-endian.
type ringInfo struct {
	rail        uint32
	epoch       uint32
	slots       uint32
	slotBytes   uint32
	payloadAddr uint64
	headerAddr  uint64
	payloadKey  uint32
	headerKey   uint32
}

const ringInfoBytes = 40

func (r *ringInfo) encode() []byte {
	b := make([]byte, ringInfoBytes)
	le := binary.LittleEndian
	le.PutUint32(b, r.rail)
	le.PutUint32(b[4:], r.epoch)
	le.PutUint32(b[8:], r.slots)
	le.PutUint32(b[12:], r.slotBytes)
	le.PutUint64(b[16:], r.payloadAddr)
	le.PutUint64(b[24:], r.headerAddr)
	le.PutUint32(b[32:], r.payloadKey)
	le.PutUint32(b[36:], r.headerKey)
	return b
}

// decodeRing checks a sink's ring against what was agreed. It may have fewer slots:
// a device may not reach as much of a GPU's memory.
func decodeRing(b []byte, slots, slotBytes int) (r ringInfo, err error) {
	if len(b) != ringInfoBytes {
		return r, fmt.Errorf("%w: ring of %d bytes", ErrProtocol, len(b))
	}
	le := binary.LittleEndian
	r = ringInfo{
		rail: le.Uint32(b), epoch: le.Uint32(b[4:]), slots: le.Uint32(b[8:]), slotBytes: le.Uint32(b[12:]),
		payloadAddr: le.Uint64(b[16:]), headerAddr: le.Uint64(b[24:]), payloadKey: le.Uint32(b[32:]), headerKey: le.Uint32(b[36:]),
	}
	if r.rail != 0 || r.epoch != 1 || r.slots == 0 || uint64(r.slots) > uint64(slots) || int(r.slotBytes) != slotBytes ||
		r.payloadAddr+uint64(r.slots)*uint64(slotBytes) < r.payloadAddr || r.headerAddr+uint64(r.slots)*headerStride < r.headerAddr {
		return r, fmt.Errorf("%w: ring of %d slots of %d bytes, agreed were %d of %d", ErrProtocol, r.slots, r.slotBytes, slots, slotBytes)
	}
	return r, nil
}
