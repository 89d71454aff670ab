package remote

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"gdrcp/rdma/rdmatest"
)

// frame returns a yamux frame with the given header and data.
func frame(kind byte, flags uint16, length uint32, data []byte) []byte {
	b := []byte{0, kind}
	b = binary.BigEndian.AppendUint16(b, flags)
	b = binary.BigEndian.AppendUint32(b, 1) // stream
	b = binary.BigEndian.AppendUint32(b, length)
	return append(b, data...)
}

// A ping ends the pipe, and no other frame does, however the bytes arrive.
func TestPingsInAPipe(t *testing.T) {
	const window, goAway = 1, 3
	ping := frame(frameOfPing, 1, 7, nil)
	good := bytes.Join([][]byte{
		frame(window, 1, 1<<18, nil), frame(frameOfData, 0, uint32(len(ping)), ping), frame(frameOfData, 0, 0, nil), frame(goAway, 0, 2, nil),
		frame(frameOfData, 0, 3, []byte{frameOfPing, frameOfPing, frameOfPing}),
	}, nil)
	for name, as := range map[string]func(io.Reader) io.Reader{
		"at once": func(r io.Reader) io.Reader { return r }, "by halves": iotest.HalfReader, "byte by byte": iotest.OneByteReader,
	} {
		read := func(b []byte) ([]byte, error) {
			return io.ReadAll(&noPings{ReadWriteCloser: stdio{as(bytes.NewReader(b)), nil}})
		}
		if got, err := read(good); err != nil || !bytes.Equal(got, good) {
			t.Errorf("%s: %d of %d bytes, %v", name, len(got), len(good), err)
		}
		if _, err := read(append(good[:len(good):len(good)], ping...)); !errors.Is(err, errMessage) {
			t.Errorf("%s: a ping: %v", name, err)
		}
	}
}

// A ping from a far end is not answered.
func TestFarEndThatPings(t *testing.T) {
	here, there := net.Pipe()
	origin, err := NewMux(here, true)
	if err != nil {
		t.Fatal(err)
	}
	defer origin.Close()
	defer there.Close()
	if _, err := there.Write(frame(frameOfPing, 1, 7, nil)); err != nil {
		t.Fatal(err)
	}
	select {
	case <-origin.Done():
	case <-time.After(rdmatest.Stretch(stallTimeout)):
		t.Error("the origin goes on")
	}
}
