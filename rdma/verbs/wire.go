//go:build linux && cgo

package verbs

import (
	"encoding/binary"
	"fmt"

	"gdrcp/rdma"
)

// The private data of a connection request and of its acceptance:
//
//	offset  bytes
//	0       4      magic "gdrv"
//	4       1      version of this layout and of the greeting
//	5       1      length n of the caller's bytes
//	6       n      the caller's bytes; none in an acceptance
//
// and of a refusal:
//
//	0       4      magic "gdrv"
//	4       1      version
//	5       1      zero
//	6       2      rdma.RejectCode, big-endian
//
// The length is sent because transports pad with zeros up to their own maximum
// (rdma_connect(3)).
const (
	wireMagic       = 0x67647276
	wireVersion     = 1
	wireHeaderBytes = 6
	rejectBytes     = 8
	// maxRequestBytes is the space for private data in an InfiniBand request.
	maxRequestBytes = 56
)

// greetingImm is the immediate of the greeting.
const greetingImm = wireMagic + wireVersion

var _ [maxRequestBytes - wireHeaderBytes - rdma.MaxPrivateDataBytes]struct{}

// errWireVersion is the error for private data of another version of this package.
type errWireVersion uint8

func (v errWireVersion) Error() string {
	return fmt.Sprintf("the peer's RDMA framing is version %d, this end's %d", uint8(v), wireVersion)
}

// encodePrivate prepends the header to data.
func encodePrivate(data []byte) ([]byte, error) {
	if len(data) > rdma.MaxPrivateDataBytes {
		return nil, fmt.Errorf("%d bytes of private data, at most %d", len(data), rdma.MaxPrivateDataBytes)
	}
	b := make([]byte, 0, maxRequestBytes)
	b = binary.BigEndian.AppendUint32(b, wireMagic)
	b = append(b, wireVersion, byte(len(data)))
	return append(b, data...), nil
}

// decodePrivate returns a copy of the data that was passed to encodePrivate.
// The error is rdma.ErrNotGdrcp or an errWireVersion.
func decodePrivate(b []byte) ([]byte, error) {
	if len(b) < wireHeaderBytes || binary.BigEndian.Uint32(b) != wireMagic {
		return nil, rdma.ErrNotGdrcp
	}
	if b[4] != wireVersion {
		return nil, errWireVersion(b[4])
	}
	n := int(b[5])
	if n > rdma.MaxPrivateDataBytes || wireHeaderBytes+n > len(b) {
		return nil, rdma.ErrNotGdrcp
	}
	return append([]byte(nil), b[wireHeaderBytes:wireHeaderBytes+n]...), nil
}

// encodeReject encodes the private data of a refusal.
func encodeReject(code rdma.RejectCode) []byte {
	b := make([]byte, 0, rejectBytes)
	b = binary.BigEndian.AppendUint32(b, wireMagic)
	b = append(b, wireVersion, 0)
	return binary.BigEndian.AppendUint16(b, uint16(code))
}

// decodeReject returns the code of a refusal and whether it came from gdrcp.
// The layout is the same in every version.
func decodeReject(b []byte) (rdma.RejectCode, bool) {
	if len(b) < rejectBytes || binary.BigEndian.Uint32(b) != wireMagic {
		return 0, false
	}
	return rdma.RejectCode(binary.BigEndian.Uint16(b[6:])), true
}
