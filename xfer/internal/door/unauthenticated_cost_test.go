package door

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
	"gdrcp/rdma/tcp"
)

// dialBare opens a door over TCP with a plain socket, which costs this process almost
// nothing, and sends no more. docs/design/protocol.md documents the preface.
func dialBare(t *testing.T, at netip.AddrPort) {
	t.Helper()
	s, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	preamble := Preamble{QPs: 1, Slots: 4, ChunkKiB: 1024, Session: [16]byte{1}}
	private := preamble.Encode()
	b := make([]byte, 64)
	copy(b, "gdrcp\r\n\x00")
	b[8] = 1
	binary.LittleEndian.PutUint16(b[10:], uint16(len(private)))
	copy(b[12:60], private)
	binary.LittleEndian.PutUint32(b[60:], crc32.Checksum(b[:60], crc32.MakeTable(crc32.Castagnoli)))
	if _, err := s.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := s.SetReadDeadline(time.Now().Add(rdmatest.Stretch(ProofWait))); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(s, make([]byte, 16)); err != nil { // the answer: the server has accepted it
		t.Fatal(err)
	}
}

// An unauthenticated client at a door over TCP costs less than 64 KiB of heap
// and stacks, as documented. About 35 KiB are measured.
func TestStrangerOverTCPCostsLittle(t *testing.T) {
	const strangers, maxBytes = 64, 64 << 10
	d := NewServer(Config{Keys: keysOf(firstKey), Handshake: ProofWait})
	at, err := d.Listen(tcp.New(), netip.MustParseAddrPort("127.0.0.1:0"), rdma.Device{})
	if err != nil {
		t.Fatal(err)
	}
	serveDoor(t, d)
	used := func() int {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc + m.StackInuse)
	}
	dialBare(t, at)
	before := used()
	for range strangers {
		dialBare(t, at)
	}
	if each := (used() - before) / strangers; each > maxBytes {
		t.Errorf("%d bytes each", each)
	} else {
		t.Logf("%d bytes each", each)
	}
}
