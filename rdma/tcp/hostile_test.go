package tcp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// victim is a Conn whose peer is a plain socket.
type victim struct {
	end
	raw *net.TCPConn
}

const victimBytes = 8192

func newVictim(t *testing.T, access rdma.Access) *victim {
	t.Helper()
	l := listen(t)
	v := &victim{end: openEnd(t, benchConfig(), victimBytes)}
	if err := v.mr.Close(); err != nil {
		t.Fatal(err)
	}
	var err error
	if v.mr, err = v.rail.Register(rdma.HostRegion(v.mem), access); err != nil {
		t.Fatal(err)
	}
	clear(v.mem)
	v.raw = dialRaw(t, l)
	preface := encodePreface(nil)
	if _, err := v.raw.Write(preface[:]); err != nil {
		t.Fatal(err)
	}
	req, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.conn, err = req.Accept(t.Context(), v.rail); err != nil {
		t.Fatal(err)
	}
	var answer [answerBytes]byte
	if _, err := io.ReadFull(v.raw, answer[:]); err != nil {
		t.Fatal(err)
	}
	if code, err := decodeAnswer(answer[:]); err != nil || code != codeAccepted {
		t.Fatalf("answer %d: %v", code, err)
	}
	return v
}

// dialRaw connects a plain socket, with a deadline for the whole test.
func dialRaw(t *testing.T, l rdma.Listener) *net.TCPConn {
	t.Helper()
	sock, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sock.Close() })
	if err := sock.SetDeadline(time.Now().Add(rdmatest.Stretch(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	return sock
}

// next returns the next completion.
func (v *victim) next(t *testing.T) rdma.Completion {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(connectTimeout))
	defer cancel()
	out := make([]rdma.Completion, 1)
	if _, err := v.rail.Wait(ctx, out); err != nil {
		t.Fatal(err)
	}
	return out[0]
}

// untouched checks that no byte of the region changed.
func (v *victim) untouched(t *testing.T) {
	t.Helper()
	for i, b := range v.mem {
		if b != 0 {
			t.Fatalf("byte %d is %#x", i, b)
		}
	}
}

// goodbye returns the code of the Goodbye that the victim sends after its other frames.
func (v *victim) goodbye(t *testing.T) uint32 {
	t.Helper()
	all, err := io.ReadAll(v.raw)
	if err != nil {
		t.Fatalf("read to the end: %v", err)
	}
	if len(all) < frameBytes {
		t.Fatalf("the victim's last words are %d bytes", len(all))
	}
	f, err := decodeFrame(all[len(all)-frameBytes:], math.MaxInt)
	if err != nil || f.op != opGoodbye {
		t.Fatalf("the victim's last frame is %+v: %v", f, err)
	}
	return f.imm
}

func encoded(f frame) []byte {
	b := make([]byte, frameBytes)
	f.encode(b)
	return b
}

// TestHostileFrames: each frame kills the Conn, moves no byte and is answered
// with the reason.
func TestHostileFrames(t *testing.T) {
	all := rdma.LocalWrite | rdma.RemoteWrite | rdma.RemoteRead
	type hostile struct {
		name   string
		access rdma.Access
		build  func(rkey uint32, addr uint64) []byte
		want   uint32
	}
	one := func(f func(rkey uint32, addr uint64) frame) func(uint32, uint64) []byte {
		return func(rkey uint32, addr uint64) []byte { return encoded(f(rkey, addr)) }
	}
	tests := []hostile{
		{"MessageTooLong", all, one(func(uint32, uint64) frame {
			return frame{op: opSend, lengthBytes: uint32(benchConfig().MsgBytes) + 1}
		}), byeProtocol},
		{"MessageHuge", all, one(func(uint32, uint64) frame { return frame{op: opSend, lengthBytes: math.MaxUint32} }), byeProtocol},
		{"LengthHuge", all, one(func(k uint32, a uint64) frame {
			return frame{op: opWrite, lengthBytes: math.MaxUint32, rkey: k, addr: a}
		}), byeProtocol},
		{"WriteTooLong", all, one(func(k uint32, a uint64) frame {
			return frame{op: opWrite, lengthBytes: victimBytes + 1, rkey: k, addr: a}
		}), byeAccess},
		{"WriteBelow", all, one(func(k uint32, a uint64) frame { return frame{op: opWrite, lengthBytes: 2, rkey: k, addr: a - 1} }), byeAccess},
		{"WriteAbove", all, one(func(k uint32, a uint64) frame {
			return frame{op: opWriteImm, lengthBytes: 2, rkey: k, addr: a + victimBytes - 1}
		}), byeAccess},
		{"WriteWraps", all, one(func(k uint32, _ uint64) frame {
			return frame{op: opWrite, lengthBytes: maxWriteBytes, rkey: k, addr: math.MaxUint64}
		}), byeAccess},
		{"WriteKey", all, one(func(k uint32, a uint64) frame { return frame{op: opWrite, lengthBytes: 2, rkey: k + 1, addr: a} }), byeAccess},
		{"WriteRight", rdma.RemoteRead, one(func(k uint32, a uint64) frame { return frame{op: opWrite, lengthBytes: 2, rkey: k, addr: a} }), byeAccess},
		{"ReadRight", rdma.RemoteWrite, one(func(k uint32, a uint64) frame { return frame{op: opReadReq, lengthBytes: 2, rkey: k, addr: a} }), byeAccess},
		{"ReadTooLong", all, one(func(k uint32, a uint64) frame {
			return frame{op: opReadReq, lengthBytes: victimBytes + 1, rkey: k, addr: a}
		}), byeAccess},
		{"AnswerToNothing", all, one(func(uint32, uint64) frame { return frame{op: opReadResp, lengthBytes: 16} }), byeProtocol},
		{"UnusedFields", all, one(func(k uint32, a uint64) frame { return frame{op: opSend, lengthBytes: 1, rkey: k, addr: a} }), byeProtocol},
		{"ReservedBytes", all, func(uint32, uint64) []byte {
			b := encoded(frame{op: opSend})
			b[2] = 1
			return b
		}, byeProtocol},
		{"TooManyReads", all, func(k uint32, a uint64) []byte {
			// The answers do not fit into the socket's buffers, so they pile up.
			var all []byte
			for range 100 * maxReads {
				all = append(all, encoded(frame{op: opReadReq, lengthBytes: victimBytes, rkey: k, addr: a})...)
			}
			return all
		}, byeProtocol},
	}
	for _, op := range []uint8{0, uint8(opGoodbye) + 1, 127, 128, 255} {
		tests = append(tests, hostile{fmt.Sprintf("Opcode%d", op), all, func(uint32, uint64) []byte {
			return encoded(frame{op: opcode(op)})
		}, byeProtocol})
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) { testHostile(t, c.access, c.build, c.want) })
	}
}

func testHostile(t *testing.T, access rdma.Access, build func(uint32, uint64) []byte, want uint32) {
	v := newVictim(t, access)
	// Bytes after the frame must not be taken for its payload.
	if _, err := v.raw.Write(append(build(v.mr.RKey(), v.mr.Addr()), 0xff, 0xff, 0xff, 0xff)); err != nil {
		t.Fatal(err)
	}
	if err := v.raw.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got := v.goodbye(t); got != want {
		t.Errorf("goodbye with code %d, want %d", got, want)
	}
	c := v.next(t)
	if c.Kind != rdma.Closed || errors.Is(c.Err, rdma.ErrAccess) != (want == byeAccess) {
		t.Errorf("completion of kind %d: %v", c.Kind, c.Err)
	}
	v.untouched(t)
}

// TestTruncatedFrames: a stream that ends at any byte is a disconnect, and
// delivers nothing that is incomplete.
func TestTruncatedFrames(t *testing.T) {
	const payload = 40
	for _, op := range []opcode{opSend, opWriteImm, opReadReq} {
		for n := range frameBytes + payload {
			if op == opReadReq && n >= frameBytes {
				break
			}
			v := newVictim(t, rdma.LocalWrite|rdma.RemoteWrite|rdma.RemoteRead)
			f := frame{op: op, lengthBytes: payload}
			if op != opSend {
				f.rkey, f.addr = v.mr.RKey(), v.mr.Addr()
			}
			stream := append(encoded(f), make([]byte, payload)...)
			if _, err := v.raw.Write(stream[:n]); err != nil {
				t.Fatal(err)
			}
			v.raw.Close()
			if c := v.next(t); c.Kind != rdma.Closed || !errors.Is(c.Err, rdma.ErrDisconnected) {
				t.Fatalf("opcode %d cut at %d: completion of kind %d: %v", op, n, c.Kind, c.Err)
			}
			if err := v.rail.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestStalledPayload: a region can be closed although the peer stopped in the
// middle of a payload, and nothing lands afterwards.
func TestStalledPayload(t *testing.T) {
	v := newVictim(t, rdma.RemoteWrite)
	f := frame{op: opWrite, lengthBytes: victimBytes, rkey: v.mr.RKey(), addr: v.mr.Addr()}
	if _, err := v.raw.Write(append(encoded(f), 1, 2, 3)); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(rdmatest.Stretch(connectTimeout)); v.mr.(*region).state.Load() == 0; {
		if time.Now().After(deadline) {
			t.Fatal("the payload does not begin")
		}
		time.Sleep(time.Millisecond)
	}
	start := time.Now()
	if err := v.mr.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("closing the region took %s", took)
	}
	clear(v.mem)
	_, _ = v.raw.Write(make([]byte, 100)) // the socket may have been reset by now
	if c := v.next(t); c.Kind != rdma.Closed {
		t.Errorf("completion of kind %d", c.Kind)
	}
	v.untouched(t)
}

// TestFlood: a peer that ignores the credits is blocked; its data is not
// buffered without bound.
func TestFlood(t *testing.T) {
	v := newVictim(t, rdma.RemoteWrite)
	depth := benchConfig().RecvDepth
	var flood []byte
	for range 3 * depth {
		flood = append(flood, encoded(frame{op: opImm, imm: 1})...)
	}
	if _, err := v.raw.Write(flood); err != nil {
		t.Fatal(err)
	}
	time.Sleep(50 * time.Millisecond)
	q := v.rail.(*rail).queue
	q.mu.Lock()
	held := q.tail - q.head
	q.mu.Unlock()
	if held > uint64(depth) {
		t.Errorf("%d completions are held for a RecvDepth of %d", held, depth)
	}
	for range 3 * depth {
		if c := v.next(t); c.Kind != rdma.Immediate {
			t.Fatalf("completion of kind %d: %v", c.Kind, c.Err)
		}
	}
}

// TestWrongAnswer answers a Read with another length or request number.
func TestWrongAnswer(t *testing.T) {
	for _, spoil := range []func(*frame){
		func(f *frame) { f.lengthBytes++ },
		func(f *frame) { f.lengthBytes-- },
		func(f *frame) { f.request++ },
	} {
		v := newVictim(t, rdma.LocalWrite)
		if _, err := v.conn.Post([]rdma.WR{{Op: rdma.OpRead, Local: v.mr, Len: 64, RKey: 1, RemoteAddr: 2}}); err != nil {
			t.Fatal(err)
		}
		header := make([]byte, frameBytes)
		if _, err := io.ReadFull(v.raw, header); err != nil {
			t.Fatal(err)
		}
		asked, err := decodeFrame(header, math.MaxInt)
		if err != nil || asked.op != opReadReq || asked.lengthBytes != 64 {
			t.Fatalf("asked %+v: %v", asked, err)
		}
		f := frame{op: opReadResp, lengthBytes: asked.lengthBytes, request: asked.request}
		spoil(&f)
		if _, err := v.raw.Write(append(encoded(f), 1, 2, 3, 4)); err != nil {
			t.Fatal(err)
		}
		if err := v.raw.CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if code := v.goodbye(t); code != byeProtocol {
			t.Errorf("goodbye with code %d", code)
		}
		v.untouched(t)
	}
}

// FuzzDecodeFrame: every frame that decodes is within limits and encodes to the
// same bytes.
func FuzzDecodeFrame(f *testing.F) {
	for op := opSend; op <= opGoodbye; op++ {
		f.Add(encoded(frame{op: op, lengthBytes: 10}))
	}
	f.Add(make([]byte, frameBytes))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < frameBytes {
			return
		}
		got, err := decodeFrame(b[:frameBytes], 4096)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Fatalf("error %v", err)
			}
			return
		}
		if got.op < opSend || got.op > opGoodbye || got.lengthBytes > maxWriteBytes ||
			(got.op == opSend && got.lengthBytes > 4096) {
			t.Fatalf("decoded %+v", got)
		}
		if again := encoded(got); string(again) != string(b[:frameBytes]) {
			t.Fatalf("%x became %x", b[:frameBytes], again)
		}
	})
}

// FuzzStream sends arbitrary bytes to a Conn. They may kill the Conn, but must
// not change memory that grants no access, nor crash the process.
func FuzzStream(f *testing.F) {
	f.Add(encoded(frame{op: opSend}))
	f.Add(append(encoded(frame{op: opSend, lengthBytes: 2}), 1, 2))
	f.Add(encoded(frame{op: opWriteImm, imm: 1}))
	f.Add(encoded(frame{op: opReadReq, request: 5}))
	f.Add(encoded(frame{op: opGoodbye, imm: 1}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		v := newVictim(t, rdma.LocalWrite)
		go io.Copy(io.Discard, v.raw)
		_, _ = v.raw.Write(stream) // the victim may hang up at any byte
		_ = v.raw.CloseWrite()
		for c := v.next(t); c.Kind != rdma.Closed; c = v.next(t) {
			if c.Kind == rdma.Done {
				t.Fatal("a Done of nothing")
			}
		}
		v.untouched(t)
		if err := v.rail.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// FuzzPreface: every preface that decodes is within bounds and encodes to the same bytes.
func FuzzPreface(f *testing.F) {
	good := encodePreface([]byte("private"))
	f.Add(good[:])
	other := good
	binary.LittleEndian.PutUint16(other[8:], version+1)
	f.Add(other[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) < prefaceBytes {
			return
		}
		data, err := decodePreface(b[:prefaceBytes])
		var otherVersion *versionError
		switch {
		case err == nil && len(data) <= rdma.MaxPrivateDataBytes:
		case err == nil:
			t.Fatalf("%d bytes of private data", len(data))
		case errors.Is(err, rdma.ErrNotGdrcp), errors.Is(err, errDamaged), errors.As(err, &otherVersion):
		default:
			t.Fatalf("error %v", err)
		}
		if code, err := decodeAnswer(b[:answerBytes]); err == nil {
			if again := encodeAnswer(code); string(again[:]) != string(b[:answerBytes]) {
				t.Fatalf("%x became %x", b[:answerBytes], again)
			}
		}
	})
}
