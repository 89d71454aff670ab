package tcp

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

func TestPrefaceRoundTrip(t *testing.T) {
	for n := range rdma.MaxPrivateDataBytes + 1 {
		data := bytes.Repeat([]byte{0xa5}, n)
		b := encodePreface(data)
		got, err := decodePreface(b[:])
		if err != nil || !bytes.Equal(got, data) {
			t.Fatalf("%d bytes became %x: %v", n, got, err)
		}
		for bit := range len(b) * 8 {
			spoiled := b
			spoiled[bit/8] ^= 1 << (bit % 8)
			if _, err := decodePreface(spoiled[:]); err == nil {
				t.Fatalf("bit %d flipped unnoticed", bit)
			}
		}
	}
}

// answered sends b to a listener and returns the whole answer.
func answered(t *testing.T, l rdma.Listener, b []byte) []byte {
	t.Helper()
	sock := dialRaw(t, l)
	if _, err := sock.Write(b); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(sock)
	if err != nil && len(got) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("after %d bytes: %v", len(got), err)
	}
	return got
}

// TestStrangers: a client that does not speak the protocol is disconnected
// immediately, without an answer.
func TestStrangers(t *testing.T) {
	damaged := encodePreface([]byte("x"))
	damaged[20] ^= 1
	long := encodePreface(nil)
	binary.LittleEndian.PutUint16(long[10:], rdma.MaxPrivateDataBytes+1)
	seal(long[:])
	l := patientListener(t) // so that a disconnect has no other cause
	for name, b := range map[string][]byte{
		"HTTP":     []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"SSH":      []byte("SSH-2.0-OpenSSH_9.2\r\n"),
		"OneByte":  []byte("x"),
		"TLS":      {0x16, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3},
		"Damaged":  damaged[:],
		"TooLong":  long[:],
		"AlmostIt": []byte(magic[:7] + "x"),
	} {
		t.Run(name, func(t *testing.T) {
			if got := answered(t, l, b); len(got) > 0 {
				t.Errorf("answered with %q", got)
			}
		})
	}
}

// TestOlderDialler: another version is answered with the number of this one.
func TestOlderDialler(t *testing.T) {
	other := encodePreface(nil)
	binary.LittleEndian.PutUint16(other[8:], version+7)
	got := answered(t, listen(t), other[:])
	if len(got) != answerBytes {
		t.Fatalf("answer %x", got)
	}
	code, err := decodeAnswer(got)
	if err != nil || rdma.RejectCode(code-1) != rdma.RejectVersion {
		t.Errorf("code %d: %v", code, err)
	}
}

// fakeServer answers connections one after another with answer.
func fakeServer(t *testing.T, answer func(net.Conn)) netip.AddrPort {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			sock, err := l.Accept()
			if err != nil {
				return
			}
			answer(sock)
			sock.Close()
		}
	}()
	t.Cleanup(func() {
		l.Close()
		<-ended
	})
	return unmap(l.Addr())
}

func TestStrangeListeners(t *testing.T) {
	newer := encodeAnswer(codeAccepted)
	binary.LittleEndian.PutUint16(newer[8:], version+1)
	tests := []struct {
		name   string
		answer string
		want   error
	}{
		{"SSH", "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n", rdma.ErrNotGdrcp},
		{"Short", "220\r\n", rdma.ErrNotGdrcp},
		{"HungUp", "", rdma.ErrDisconnected},
		{"CutOff", magic, rdma.ErrDisconnected},
		{"Damaged", magic + "\x01\x00\x00\x00abcd", errDamaged},
		{"Newer", string(newer[:]), &rdma.RejectedError{Code: rdma.RejectVersion}},
	}
	for _, c := range tests {
		t.Run(c.name, func(t *testing.T) {
			addr := fakeServer(t, func(sock net.Conn) {
				// The test checks the dialler's reaction.
				_, _ = io.CopyN(io.Discard, sock, prefaceBytes)
				_, _ = io.WriteString(sock, c.answer)
			})
			e := openEnd(t, benchConfig(), 4096)
			_, err := e.rail.Dial(t.Context(), addr, nil)
			var rejected, want *rdma.RejectedError
			if errors.As(c.want, &want) {
				if !errors.As(err, &rejected) || rejected.Code != want.Code || rejected.Peer != addr {
					t.Errorf("Dial: %v", err)
				}
				return
			}
			if !errors.Is(err, c.want) {
				t.Errorf("Dial: %v, want %v", err, c.want)
			}
		})
	}
}

// TestSlowStrangers: one connection too many costs a half-open one its place,
// and an honest dialler gets through.
func TestSlowStrangers(t *testing.T) {
	l := patientListener(t)
	hungUp := make(chan struct{}, maxHalfOpen)
	for range maxHalfOpen {
		sock := dialRaw(t, l)
		if _, err := io.WriteString(sock, magic[:4]); err != nil {
			t.Fatal(err)
		}
		go func() {
			// Unread bytes make it a reset.
			if _, err := io.ReadAll(sock); err == nil || errors.Is(err, syscall.ECONNRESET) {
				hungUp <- struct{}{}
			}
		}()
	}
	l.awaitHalfOpen(t, maxHalfOpen) // all of them, so none has been dropped
	dialled := make(chan error, 1)
	e, other := openEnd(t, benchConfig(), 4096), openEnd(t, benchConfig(), 4096)
	go func() {
		_, err := e.rail.Dial(t.Context(), l.Addr(), nil)
		dialled <- err
	}()
	req, err := l.Accept(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := req.Accept(t.Context(), other.rail); err != nil {
		t.Fatal(err)
	}
	if err := <-dialled; err != nil {
		t.Fatal(err)
	}
	l.awaitHalfOpen(t, maxHalfOpen-1)
	select {
	case <-hungUp:
	case <-time.After(rdmatest.Stretch(prefaceTimeout)):
		t.Error("nobody was hung up on")
	}
}

// patientListener drops nobody for being slow while a test runs.
func patientListener(t *testing.T) *listener {
	t.Helper()
	p := New()
	p.prefaceTimeout = time.Hour
	l, err := p.Listen(netip.MustParseAddrPort("127.0.0.1:0"), rdma.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.(*listener)
}

// awaitHalfOpen waits until n connections are half-open.
func (l *listener) awaitHalfOpen(t *testing.T, n int) {
	t.Helper()
	for deadline := time.Now().Add(rdmatest.Stretch(prefaceTimeout)); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		is := len(l.halfOpen)
		l.mu.Unlock()
		if is == n {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d connections are half-open, not %d", is, n)
		}
	}
}

// TestStrangersOfOneAddress: however many connections come from one address, a
// connection from another keeps its place.
func TestStrangersOfOneAddress(t *testing.T) {
	l := patientListener(t) // long enough for the first while all others arrive
	from := net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	first, err := net.DialTCP("tcp", &from, net.TCPAddrFromAddrPort(l.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for range 20 * maxHalfOpen {
		sock, err := net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(l.Addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer sock.Close()
	}
	preface := encodePreface(nil)
	if _, err := first.Write(preface[:]); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), rdmatest.Stretch(prefaceTimeout))
	defer cancel()
	req, err := l.Accept(ctx)
	if err != nil {
		t.Fatalf("the one of another address lost its place: %v", err)
	}
	if got := req.Remote().Addr(); got != netip.MustParseAddr("127.0.0.2") {
		t.Errorf("somebody else came in: %v", got)
	}
	_ = req.Reject(rdma.RejectBusy) // nobody receives it
}

// TestSlowPreface: a connection whose preface does not arrive in time is closed.
func TestSlowPreface(t *testing.T) {
	p := New()
	p.prefaceTimeout = 50 * time.Millisecond
	l, err := p.Listen(netip.MustParseAddrPort("127.0.0.1:0"), rdma.Wire{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := time.Now() // before the listener's timeout begins
	sock := dialRaw(t, l)
	if _, err := io.WriteString(sock, magic); err != nil {
		t.Fatal(err)
	}
	// Unread bytes make it a reset.
	if _, err := io.ReadAll(sock); err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Fatalf("read to the end: %v", err)
	}
	if took := time.Since(start); took < p.prefaceTimeout/2 {
		t.Errorf("hung up after %s", took)
	}
}

// TestSilentListener: a listener that never answers costs the connect timeout.
func TestSilentListener(t *testing.T) {
	release := make(chan struct{})
	addr := fakeServer(t, func(net.Conn) { <-release })
	defer close(release)
	p := New()
	p.connectTimeout = time.Second
	rail, err := p.Open("tcp", benchConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer rail.Close()
	start := time.Now()
	_, err = rail.Dial(t.Context(), addr, nil)
	if took := time.Since(start); !errors.Is(err, os.ErrDeadlineExceeded) || took < p.connectTimeout/2 {
		t.Errorf("Dial ended after %s: %v", took, err)
	}
}

func TestOpenChecks(t *testing.T) {
	for name, change := range map[string]func(*rdma.RailConfig){
		"Conns":        func(c *rdma.RailConfig) { c.Conns = 0 },
		"SendDepth":    func(c *rdma.RailConfig) { c.SendDepth = -1 },
		"RecvDepth":    func(c *rdma.RailConfig) { c.RecvDepth = 0 },
		"MsgBytes":     func(c *rdma.RailConfig) { c.MsgBytes = rdma.MaxMsgBytes + 1 },
		"NoWriteBytes": func(c *rdma.RailConfig) { c.WriteBytes = 0 },
		"WriteBytes":   func(c *rdma.RailConfig) { c.WriteBytes = maxWriteBytes + 1 },
	} {
		cfg := benchConfig()
		change(&cfg)
		if _, err := New().Open("tcp", cfg); err == nil {
			t.Errorf("%s: opened a rail with %+v", name, cfg)
		}
	}
}

func TestRegionsDoNotOverlap(t *testing.T) {
	table := regionTable{byRKey: map[uint32]*region{1: {addr: 1 << 20, mem: make([]byte, 8192)}}}
	for _, c := range []struct {
		addr uint64
		n    int
		want bool
	}{
		{1<<20 - 4096, 4096, true}, {1<<20 - 4096, 4097, false}, {1 << 20, 1, false},
		{1<<20 + 4096, 1, false}, {1<<20 + 8192, 4096, true}, {0, 4 << 20, false},
		{^uint64(0) - 4095, 4096, false}, {^uint64(0) - 8191, 4096, true},
	} {
		if got := table.free(c.addr, c.n); got != c.want {
			t.Errorf("%d bytes at %#x: free is %t", c.n, c.addr, got)
		}
	}
}

func TestDevice(t *testing.T) {
	devices, err := New().Devices()
	if err != nil || len(devices) != 1 {
		t.Fatalf("devices %+v: %v", devices, err)
	}
	d := devices[0]
	if d.Name != "tcp" || d.Transport != rdma.TCP || len(d.Addrs()) == 0 || !d.Usable() {
		t.Errorf("device %+v", d)
	}
	for _, a := range d.Addrs() {
		if rdma.NeedsZone(a) || a.Is4In6() || strings.Contains(a.String(), "%") {
			t.Errorf("address %s", a)
		}
	}
}
