package xfer

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// ProtocolVersion is the version of everything that two gdrcp say to each
// other. Both ends must speak the same.
const ProtocolVersion = 2

const preambleMagic = 0x50434447 // "GDCP"

// preamble is the private data of a connection request: it says whose queue
// pair this is before one is made for it. 48 bytes, little-endian:
//
//	offset size field
//	     0    4 magic "GDCP"
//	     4    2 protocol version
//	     6    1 0: a door, 1: a queue pair of a session
//	     7    1 rail index: 0, as a session has one rail
//	     8    1 queue pair index in the rail
//	     9    1 queue pairs wanted (door)
//	    10    2 slots wanted (door); epoch (queue pair)
//	    12    4 chunk size wanted, KiB (door)
//	    16   16 session id
//	    32   16 join token (queue pair)
//
// A door's preamble is the prologue of its handshake: the server's grant is for
// what was asked here.
type preamble struct {
	join     bool
	lane     trust.Lane // queue pair
	qps      uint8
	slots    uint16
	chunkKiB uint32
	session  [16]byte
	token    [trust.TokenBytes]byte
}

func (p *preamble) encode() []byte {
	b := make([]byte, rdma.MaxPrivateDataBytes)
	le := binary.LittleEndian
	le.PutUint32(b, preambleMagic)
	le.PutUint16(b[4:], ProtocolVersion)
	b[9] = p.qps
	le.PutUint16(b[10:], p.slots)
	if p.join {
		b[6], b[7], b[8] = 1, p.lane.Rail, p.lane.QP
		le.PutUint16(b[10:], p.lane.Epoch)
	}
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

// decodePreamble checks what an unauthenticated client sent. Bounds on the wishes are the
// server's to apply.
func decodePreamble(b []byte) (p preamble, err error) {
	le := binary.LittleEndian
	if len(b) < rdma.MaxPrivateDataBytes || le.Uint32(b) != preambleMagic {
		return p, rdma.ErrNotGdrcp
	}
	if v := le.Uint16(b[4:]); v != ProtocolVersion {
		return p, errVersion{v}
	}
	if b[6] > 1 || b[7] != 0 || (b[6] == 0 && b[8] != 0) {
		return p, fmt.Errorf("%w: queue pair %d of kind %d on rail %d", wire.ErrProtocol, b[8], b[6], b[7])
	}
	p = preamble{join: b[6] == 1, qps: b[9], chunkKiB: le.Uint32(b[12:])}
	copy(p.session[:], b[16:])
	copy(p.token[:], b[32:])
	if p.join {
		p.lane = trust.Lane{Rail: b[7], QP: b[8], Epoch: le.Uint16(b[10:])}
		return p, nil
	}
	p.slots = le.Uint16(b[10:])
	if p.qps == 0 || p.slots == 0 || p.chunkKiB == 0 {
		return p, fmt.Errorf("%w: a session of no slots", wire.ErrProtocol)
	}
	return p, nil
}
