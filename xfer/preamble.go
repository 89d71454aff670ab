package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/rdma"
)

// ProtocolVersion is the version of everything that two gdrcp say to each
// other. Both ends must speak the same.
const ProtocolVersion = 1

const preambleMagic = 0x50434447 // "GDCP"

// preamble is the private data of a connection request: it says whose queue
// pair this is before one is made for it. 48 bytes, little-endian:
//
//	offset size field
//	     0    4 magic "GDCP"
//	     4    2 protocol version
//	     6    1 0: a new session, 1: a further queue pair of one
//	     7    1 rail index: 0, as a session has one rail
//	     8    1 queue pair index in the rail: 0 for a new session
//	     9    1 queue pairs wanted (new session)
//	    10    2 slots wanted
//	    12    4 chunk size wanted, KiB
//	    16   16 session id
//	    32   16 join token (further queue pair)
type preamble struct {
	join     bool
	qp       uint8
	qps      uint8
	slots    uint16
	chunkKiB uint32
	session  [16]byte
	token    [16]byte
}

func (p *preamble) encode() []byte {
	b := make([]byte, rdma.MaxPrivateDataBytes)
	le := binary.LittleEndian
	le.PutUint32(b, preambleMagic)
	le.PutUint16(b[4:], ProtocolVersion)
	if p.join {
		b[6] = 1
	}
	b[8], b[9] = p.qp, p.qps
	le.PutUint16(b[10:], p.slots)
	le.PutUint32(b[12:], p.chunkKiB)
	copy(b[16:], p.session[:])
	copy(b[32:], p.token[:])
	return b
}

// errVersion is a peer of another protocol version.
type errVersion struct{ peer uint16 }

func (e errVersion) Error() string {
	return fmt.Sprintf("the peer speaks protocol version %d, this gdrcp %d", e.peer, ProtocolVersion)
}

// decodePreamble checks what a stranger sent. Bounds on the wishes are the
// server's to apply.
func decodePreamble(b []byte) (p preamble, err error) {
	le := binary.LittleEndian
	if len(b) < rdma.MaxPrivateDataBytes || le.Uint32(b) != preambleMagic {
		return p, rdma.ErrNotGdrcp
	}
	if v := le.Uint16(b[4:]); v != ProtocolVersion {
		return p, errVersion{v}
	}
	if b[6] > 1 || b[7] != 0 {
		return p, fmt.Errorf("%w: connection of kind %d on rail %d", ErrProtocol, b[6], b[7])
	}
	p = preamble{join: b[6] == 1, qp: b[8], qps: b[9], slots: le.Uint16(b[10:]), chunkKiB: le.Uint32(b[12:])}
	copy(p.session[:], b[16:])
	copy(p.token[:], b[32:])
	if p.join != (p.qp > 0) {
		return p, fmt.Errorf("%w: queue pair %d of its session", ErrProtocol, p.qp)
	}
	if !p.join && (p.qps == 0 || p.slots == 0 || p.chunkKiB == 0) {
		return p, fmt.Errorf("%w: a session of no slots", ErrProtocol)
	}
	return p, nil
}
