package tcp

import (
	"fmt"
	"math"
	"net"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// unsentBytes bounds the unsent data that the kernel may hold (TCP_NOTSENT_LOWAT, tcp(7)):
// urgent data does not wait for many megabytes ahead of it, and the kernel soon sends what
// it has copied. A smaller bound would wake the writer more often, at the price of a
// context switch each. The kernel sizes the send buffer: a fixed size (SO_SNDBUF) would
// disable its adaptation to the path's bandwidth-delay product.
const unsentBytes = 1 << 20

// tune sets a socket's options for bulk data. It does not change streams that
// are not sockets.
func tune(stream Stream, tos int) error {
	sock, ok := stream.(*net.TCPConn)
	if !ok {
		return nil
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return fmt.Errorf("tune socket: %w", err)
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_NOTSENT_LOWAT, unsentBytes)
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("tune socket: %w", err)
	}
	return mark(raw, tos)
}

// mark sets the type of service of a socket's packets, for both families
// (ip(7), ipv6(7)), because an IPv6 socket may carry IPv4. 0 changes nothing.
// The kernel controls the two bits of ECN itself.
func mark(raw syscall.RawConn, tos int) error {
	if tos == 0 {
		return nil
	}
	var failed error
	err := raw.Control(func(fd uintptr) {
		domain, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err == nil && domain == unix.AF_INET6 {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
		}
		if err == nil {
			err = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_TOS, tos)
		}
		failed = err
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return fmt.Errorf("set the type of service: %w", err)
	}
	return nil
}

// unackedFor returns for how long the peer's kernel has acknowledged nothing,
// although data was retransmitted several times in a row. Otherwise, for
// streams that are not sockets, and for closed sockets it is 0.
func unackedFor(stream Stream) time.Duration {
	info := tcpInfo(stream)
	if info == nil || info.Retransmits < resentTimes || info.Unacked == 0 {
		return 0
	}
	return time.Duration(info.Last_ack_recv) * time.Millisecond
}

// ackedBytes returns how many sent bytes the peer's kernel has acknowledged
// (tcpi_bytes_acked, Linux 4.1). ok is false for streams that are not sockets,
// and for closed sockets.
func ackedBytes(stream Stream) (n uint64, ok bool) {
	info := tcpInfo(stream)
	if info == nil {
		return 0, false
	}
	return info.Bytes_acked, true
}

// pauseOf returns for how long a peer that was recently active may accept nothing. It is 0
// for other peers, for streams that are not sockets, and for closed sockets.
func pauseOf(stream Stream) time.Duration {
	info := tcpInfo(stream)
	if info == nil || time.Duration(info.Last_ack_recv)*time.Millisecond > heardLately {
		return 0
	}
	return min(resends*time.Duration(info.Rto)*time.Microsecond, heardLately)
}

// roundTrip is the shortest round trip that the kernel has measured, or 0 if it
// has measured none.
func roundTrip(stream Stream) time.Duration {
	info := tcpInfo(stream)
	if info == nil || info.Min_rtt == math.MaxUint32 {
		return 0
	}
	return time.Duration(info.Min_rtt) * time.Microsecond
}

// tcpInfo queries the kernel about a socket (tcp(7), TCP_INFO). It returns nil
// for streams that are not sockets, and for closed sockets.
func tcpInfo(stream Stream) (info *unix.TCPInfo) {
	sock, is := stream.(*net.TCPConn)
	if !is {
		return nil
	}
	raw, err := sock.SyscallConn()
	if err != nil {
		return nil
	}
	err = raw.Control(func(fd uintptr) {
		if got, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info = got
		}
	})
	if err != nil {
		return nil
	}
	return info
}
