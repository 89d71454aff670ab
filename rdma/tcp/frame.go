package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame's header:
//
//	offset  bytes  field
//	     0      1  opcode
//	     1      3  zero
//	     4      4  length: bytes of payload that follow; in ReadReq, bytes requested
//	     8      4  imm of WriteImm and Imm; code of Goodbye
//	    12      4  rkey of Write, WriteImm, ReadReq
//	    16      8  addr, the remote address
//	    24      8  request, copied from ReadReq to ReadResp
//
// Fields that an opcode does not use are zero.
const frameBytes = 32

type opcode uint8

const (
	opSend     opcode = iota + 1 // payload: the message
	opWrite                      // payload: the data
	opWriteImm                   // payload: the data; then imm is delivered
	opImm                        // imm is delivered (ForceImmSend)
	opReadReq                    // requests a ReadResp
	opReadResp                   // payload: the requested bytes
	opGoodbye                    // the last frame of its sender
)

// maxReads is how many unanswered ReadReqs one end may have. It is a constant of the
// protocol, so that the responder needs room for no more, and its reader never has to wait
// for its writer, which would deadlock two ends that both read a lot.
const maxReads = 64

// The codes of a Goodbye.
const (
	byeOrderly  uint32 = iota // Conn.Close
	byeAccess                 // the peer's remote access was refused
	byeProtocol               // the peer broke the protocol
)

// frame is a decoded header.
type frame struct {
	op          opcode
	lengthBytes uint32
	imm         uint32
	rkey        uint32
	addr        uint64
	request     uint64
}

var errFrame = errors.New("malformed frame")

// encode writes the header to b, which has frameBytes bytes.
func (f *frame) encode(b []byte) {
	binary.LittleEndian.PutUint32(b[0:], uint32(f.op))
	binary.LittleEndian.PutUint32(b[4:], f.lengthBytes)
	binary.LittleEndian.PutUint32(b[8:], f.imm)
	binary.LittleEndian.PutUint32(b[12:], f.rkey)
	binary.LittleEndian.PutUint64(b[16:], f.addr)
	binary.LittleEndian.PutUint64(b[24:], f.request)
}

// decodeFrame reads a header from b, which has frameBytes bytes. msgBytes is
// the length of the longest acceptable message. The memory region checks the
// lengths of Writes and Reads.
func decodeFrame(b []byte, msgBytes int) (frame, error) {
	word := binary.LittleEndian.Uint32(b[0:])
	f := frame{
		op:          opcode(word),
		lengthBytes: binary.LittleEndian.Uint32(b[4:]),
		imm:         binary.LittleEndian.Uint32(b[8:]),
		rkey:        binary.LittleEndian.Uint32(b[12:]),
		addr:        binary.LittleEndian.Uint64(b[16:]),
		request:     binary.LittleEndian.Uint64(b[24:]),
	}
	if word > uint32(opGoodbye) || word < uint32(opSend) {
		return frame{}, fmt.Errorf("%w: opcode %d", errFrame, word)
	}
	if f.lengthBytes > maxWriteBytes {
		return frame{}, fmt.Errorf("%w: length %d", errFrame, f.lengthBytes)
	}
	if used := f.used(); used != f {
		return frame{}, fmt.Errorf("%w: opcode %d with fields that it does not use", errFrame, f.op)
	}
	if f.op == opSend && uint64(f.lengthBytes) > uint64(msgBytes) {
		return frame{}, fmt.Errorf("%w: message of %d bytes, at most %d", errFrame, f.lengthBytes, msgBytes)
	}
	return f, nil
}

// used returns f with all fields cleared that its opcode does not use.
func (f frame) used() frame {
	switch f.op {
	case opSend:
		return frame{op: f.op, lengthBytes: f.lengthBytes}
	case opWrite:
		f.imm, f.request = 0, 0
	case opWriteImm:
		f.request = 0
	case opImm, opGoodbye:
		return frame{op: f.op, imm: f.imm}
	case opReadReq:
		f.imm = 0
	case opReadResp:
		return frame{op: f.op, lengthBytes: f.lengthBytes, request: f.request}
	}
	return f
}
