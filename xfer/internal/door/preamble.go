package door

import (
	"encoding/binary"
	"fmt"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

const preambleMagic = 0x50434447 // "GDCP"

// Preamble is the private data of a connection request. It identifies the queue
// pair to the server before the server creates one. 48 bytes, little-endian:
//
//	offset size field
//	     0    4 magic "GDCP"
//	     4    2 protocol version
//	     6    1 0: a door, 1: a queue pair of a session
//	     7    1 1: of a further link, whose number is the epoch; otherwise 0
//	     8    1 queue pair index in the rail
//	     9    1 queue pairs requested (door)
//	    10    2 slots requested (door); epoch (queue pair)
//	    12    4 requested chunk size, KiB (door)
//	    16   16 session id
//	    32   16 join token (queue pair)
//
// A door's preamble is the prologue of its handshake: it binds the server's
// grant to the client's request here. A distant client sends another request,
// under the first seal.
type Preamble struct {
	Join     bool       // for a queue pair of a session, not for a door
	Lane     trust.Lane // for a queue pair
	QPs      uint8      // QPs, Slots and ChunkKiB are for a door
	Slots    uint16
	ChunkKiB uint32
	Session  [16]byte
	Token    [trust.TokenBytes]byte
}

// Encode returns the encoding, of rdma.MaxPrivateDataBytes.
func (p *Preamble) Encode() []byte {
	b := make([]byte, rdma.MaxPrivateDataBytes)
	le := binary.LittleEndian
	le.PutUint32(b, preambleMagic)
	le.PutUint16(b[4:], wire.ProtocolVersion)
	b[9] = p.QPs
	le.PutUint16(b[10:], p.Slots)
	if p.Join {
		b[6], b[7], b[8] = 1, p.Lane.Rail, p.Lane.QP
		le.PutUint16(b[10:], p.Lane.Epoch)
	}
	le.PutUint32(b[12:], p.ChunkKiB)
	copy(b[16:], p.Session[:])
	copy(b[32:], p.Token[:])
	return b
}

// errVersion means that the peer speaks another protocol version.
type errVersion struct{ peer uint16 }

func (e errVersion) Error() string {
	return fmt.Sprintf("the peer speaks protocol version %d, this gdrcp %d", e.peer, wire.ProtocolVersion)
}

// decodePreamble checks what an unauthenticated client sent. The server bounds
// the request later.
func decodePreamble(b []byte) (p Preamble, err error) {
	le := binary.LittleEndian
	if len(b) < rdma.MaxPrivateDataBytes || le.Uint32(b) != preambleMagic {
		return p, rdma.ErrNotGdrcp
	}
	if v := le.Uint16(b[4:]); v != wire.ProtocolVersion {
		return p, errVersion{v}
	}
	if b[6] > 1 || b[7] > 1 || (b[6] == 0 && b[7]|b[8] != 0) {
		return p, fmt.Errorf("%w: queue pair %d of kind %d on rail %d", wire.ErrProtocol, b[8], b[6], b[7])
	}
	p = Preamble{Join: b[6] == 1, QPs: b[9], ChunkKiB: le.Uint32(b[12:])}
	copy(p.Session[:], b[16:])
	copy(p.Token[:], b[32:])
	if p.Join {
		p.Lane = trust.Lane{Rail: b[7], QP: b[8], Epoch: le.Uint16(b[10:])}
		return p, nil
	}
	p.Slots = le.Uint16(b[10:])
	if p.QPs == 0 || p.Slots == 0 || p.ChunkKiB == 0 {
		return p, fmt.Errorf("%w: a session of no slots", wire.ErrProtocol)
	}
	return p, nil
}
