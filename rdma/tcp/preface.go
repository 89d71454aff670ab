package tcp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/netip"
	"os"

	"gdrcp/rdma"
)

// The preface, which the dialler sends:
//
//	offset  bytes  field
//	     0      8  magic
//	     8      2  version
//	    10      2  length of the private data
//	    12     48  private data, padded with zeros
//	    60      4  CRC-32C of all before
//
// CRC-32C of all before
//
//	 0      8  magic
//	 8      2  version
//	10      2  code: 0 accepted, else 1 + rdma.RejectCode
//	12      4  CRC-32C of all before
//
// The positions of magic and version, and the preface's length, are the same in every
// version, so that ends of different versions can report their versions to each other.
const (
	prefaceBytes = 64
	answerBytes  = 16
	magic        = "gdrcp\r\n\x00" // mangled by anything that translates line endings
	version      = 1

	codeAccepted = 0
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)

	errDamaged = errors.New("damaged preface")
)

// versionError is the error for a preface or answer of another version.
type versionError struct{ version uint16 }

func (e *versionError) Error() string {
	return fmt.Sprintf("protocol version %d, here it is %d", e.version, version)
}

// encodePreface builds the preface. privateData has at most
// rdma.MaxPrivateDataBytes bytes.
func encodePreface(privateData []byte) [prefaceBytes]byte {
	var b [prefaceBytes]byte
	copy(b[:], magic)
	binary.LittleEndian.PutUint16(b[8:], version)
	binary.LittleEndian.PutUint16(b[10:], uint16(len(privateData)))
	copy(b[12:12+rdma.MaxPrivateDataBytes], privateData)
	seal(b[:])
	return b
}

// decodePreface checks a preface of prefaceBytes bytes and returns its private data.
// The error is rdma.ErrNotGdrcp, a *versionError or errDamaged.
func decodePreface(b []byte) ([]byte, error) {
	if err := checkHead(b); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint16(b[10:]))
	if n > rdma.MaxPrivateDataBytes {
		return nil, fmt.Errorf("%w: %d bytes of private data", errDamaged, n)
	}
	return b[12 : 12+n], nil
}

func encodeAnswer(code uint16) [answerBytes]byte {
	var b [answerBytes]byte
	copy(b[:], magic)
	binary.LittleEndian.PutUint16(b[8:], version)
	binary.LittleEndian.PutUint16(b[10:], code)
	seal(b[:])
	return b
}

// decodeAnswer checks an answer of answerBytes bytes and returns its code.
func decodeAnswer(b []byte) (uint16, error) {
	if err := checkHead(b); err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint16(b[10:]), nil
}

// seal writes the checksum into the last four bytes.
func seal(b []byte) {
	body := b[:len(b)-4]
	binary.LittleEndian.PutUint32(b[len(body):], crc32.Checksum(body, castagnoli))
}

// checkHead checks the fields that preface and answer have in common. It checks the
// version before the checksum, since another version may compute the checksum differently.
func checkHead(b []byte) error {
	if string(b[:len(magic)]) != magic {
		return rdma.ErrNotGdrcp
	}
	if v := binary.LittleEndian.Uint16(b[8:]); v != version {
		return &versionError{v}
	}
	body := b[:len(b)-4]
	if binary.LittleEndian.Uint32(b[len(body):]) != crc32.Checksum(body, castagnoli) {
		return errDamaged
	}
	return nil
}

// greet sends the preface and reads the answer. The socket's deadline bounds it.
func greet(sock Stream, remote netip.AddrPort, privateData []byte) error {
	preface := encodePreface(privateData)
	if _, err := sock.Write(preface[:]); err != nil {
		return fmt.Errorf("send preface: %w", asLost(err))
	}
	var answer [answerBytes]byte
	n, err := io.ReadFull(sock, answer[:])
	if err != nil {
		return unanswered(answer[:n], err)
	}
	code, err := decodeAnswer(answer[:])
	var other *versionError
	switch {
	case errors.As(err, &other):
		return &rdma.RejectedError{Peer: remote, Code: rdma.RejectVersion}
	case err != nil:
		return err
	case code != codeAccepted:
		return &rdma.RejectedError{Peer: remote, Code: rdma.RejectCode(code - 1)}
	}
	return nil
}

// unanswered returns the error for an answer of which only got arrived.
func unanswered(got []byte, err error) error {
	head := min(len(got), len(magic))
	switch {
	case string(got[:head]) != magic[:head]:
		return rdma.ErrNotGdrcp
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("wait for the answer: %w", err)
	default:
		return fmt.Errorf("wait for the answer: %w: %w", rdma.ErrDisconnected, err)
	}
}
