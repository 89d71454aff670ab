//go:build linux

package tcp

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gdrcp/rdma"
	"gdrcp/rdma/rdmatest"
)

// packets returns a packet socket that receives nothing until ofPort (packet(7)).
func packets(t *testing.T) int {
	t.Helper()
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if errors.Is(err, unix.EPERM) {
		t.Skip("looks at packets: run as root")
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// ofPort attaches a filter by which a packet socket receives only the packets
// of one TCP port, since others might fill its buffer. The filter (bpf(4))
// assumes IP headers without options.
func ofPort(t *testing.T, fd int, port uint16) {
	t.Helper()
	const loadHalf, loadByte = unix.BPF_LD | unix.BPF_H | unix.BPF_ABS, unix.BPF_LD | unix.BPF_B | unix.BPF_ABS
	const equal, answer, all = unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, unix.BPF_RET | unix.BPF_K, 1 << 17
	ask := func(at, found uint32) []unix.SockFilter { // found: the number of instructions to skip to the last one
		return []unix.SockFilter{
			{Code: loadHalf, K: at}, {Code: equal, Jt: uint8(found + 2), K: uint32(port)},
			{Code: loadHalf, K: at + 2}, {Code: equal, Jt: uint8(found), K: uint32(port)},
		}
	}
	list := []unix.SockFilter{{Code: loadByte}, {Code: unix.BPF_ALU | unix.BPF_RSH | unix.BPF_K, K: 4}, {Code: equal, Jf: 5, K: 4}}
	list = append(list, ask(20, 6)...)
	list = append(list, unix.SockFilter{Code: answer})
	list = append(list, ask(40, 1)...)
	list = append(list, unix.SockFilter{Code: answer}, unix.SockFilter{Code: answer, K: all})
	if err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(list)), Filter: &list[0]}); err != nil {
		t.Fatal(err)
	}
	const everyProtocol = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everyProtocol}); err != nil {
		t.Fatal(err)
	}
}

// header returns the type of service, source and destination port of p. ok is
// false unless p is a TCP packet with data or a SYN-ACK.
func header(p []byte) (tos int, from, to uint16, ok bool) {
	var segment []byte
	switch {
	case len(p) >= 40 && p[0]>>4 == 4 && p[9] == unix.IPPROTO_TCP:
		tos, segment = int(p[1]), p[int(p[0]&15)*4:]
	case len(p) >= 60 && p[0]>>4 == 6 && p[6] == unix.IPPROTO_TCP:
		tos, segment = int(binary.BigEndian.Uint16(p)>>4&0xff), p[40:]
	default:
		return 0, 0, 0, false
	}
	const synAck = 0x12
	ok = len(segment) > int(segment[12]>>4)*4 || segment[13]&synAck == synAck
	return tos, binary.BigEndian.Uint16(segment), binary.BigEndian.Uint16(segment[2:]), ok
}

// Each end's data is sent with its own type of service, over both address
// families, and so is the SYN-ACK.
func TestTypeOfService(t *testing.T) {
	const dials, accepts = 104, 184
	for _, ip := range []string{"127.0.0.1", "::1", "::ffff:127.0.0.1"} {
		t.Run(ip, func(t *testing.T) {
			fd := packets(t)
			at := netip.MustParseAddr(ip)
			bind := at
			if at.Is4In6() { // an IPv6 socket that carries IPv4
				bind, at = netip.IPv6Unspecified(), at.Unmap()
			}
			l, err := New().Listen(netip.AddrPortFrom(bind, 0), rdma.Wire{TOS: accepts})
			if err != nil {
				t.Skipf("listen on %s: %v", bind, err)
			}
			defer l.Close()
			port := l.Addr().Port()
			ofPort(t, fd, port)
			a, b := markedRail(t, dials), markedRail(t, accepts)
			accepted := make(chan rdma.Conn, 1)
			go func() {
				var c rdma.Conn
				if q, err := l.Accept(t.Context()); err == nil {
					c, _ = q.Accept(t.Context(), b)
				}
				accepted <- c
			}()
			near, err := a.Dial(t.Context(), netip.AddrPortFrom(at, port), nil)
			if err != nil {
				t.Fatal(err)
			}
			far := <-accepted
			if far == nil {
				t.Fatal("nothing was accepted")
			}
			for _, c := range []rdma.Conn{near, far} {
				if _, err := c.Post([]rdma.WR{{Op: rdma.OpSend, Msg: []byte("marked")}}); err != nil {
					t.Fatal(err)
				}
			}
			seen, want := map[bool]int{}, map[bool]int{true: dials, false: accepts} // keyed by whether the dialler sent it
			const each = 4                                                          // every packet is captured twice, when it leaves and when it arrives
			buf := make([]byte, 1<<17)
			for deadline := time.Now().Add(rdmatest.Stretch(connectTimeout)); time.Now().Before(deadline) && (seen[true] < each || seen[false] < each); {
				n, _, err := unix.Recvfrom(fd, buf, 0)
				if err != nil {
					continue
				}
				tos, from, to, ok := header(buf[:n])
				if !ok || from != port && to != port {
					continue
				}
				seen[to == port]++
				if tos != want[to == port] {
					t.Fatalf("packet %d of those that the dialler sent (%v) has type of service %d, want %d", seen[to == port], to == port, tos, want[to == port])
				}
			}
			if seen[true] < each || seen[false] < each {
				t.Errorf("%d packets of the dialler and %d of the other end were seen, too few to tell", seen[true], seen[false])
			}
		})
	}
}

// markedRail returns a rail for one Conn whose packets have the given type of service.
func markedRail(t *testing.T, tos int) rdma.Rail {
	t.Helper()
	r, err := New().Open(deviceName, rdma.RailConfig{Conns: 1, SendDepth: 4, RecvDepth: 4, MsgBytes: 64, WriteBytes: 64, Wire: rdma.Wire{TOS: tos}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r
}
