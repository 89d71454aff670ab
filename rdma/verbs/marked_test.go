//go:build linux && cgo

package verbs

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMarkedPackets captures packets on a network interface while another program copies
// over it by RoCE or iWARP (tests/program/two-guests): outgoing and incoming packets must
// have the types of service that GDRCP_TEST_MARKED lists after the interface's name.
func TestMarkedPackets(t *testing.T) {
	name, values, ok := strings.Cut(os.Getenv("GDRCP_TEST_MARKED"), "=")
	if !ok {
		t.Skip("GDRCP_TEST_MARKED=interface=number/number names no packets to look at: run tests/program/two-guests")
	}
	var wantSent, wantCame int
	if _, err := fmt.Sscanf(values, "%d/%d", &wantSent, &wantCame); err != nil {
		t.Fatalf("%q: %v", values, err)
	}
	iface, err := net.InterfaceByName(name)
	if err != nil {
		t.Fatal(err)
	}
	const everyProtocol = unix.ETH_P_ALL<<8&0xff00 | unix.ETH_P_ALL>>8 // in network byte order: packet(7)
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, everyProtocol)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: everyProtocol, Ifindex: iface.Index}); err != nil {
		t.Fatal(err)
	}
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		t.Fatal(err)
	}
	const packets = 20
	sent, came := 0, 0
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end) && (sent < packets || came < packets); {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || n < 40 || buf[0] != 0x45 || !isRoCE(buf) && !isIWARP(buf) {
			continue
		}
		want := wantCame
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			sent++
			want = wantSent
		} else {
			came++
		}
		if int(buf[1]) != want {
			t.Fatalf("packet %d of those sent and %d of those that came has type of service %d, want %d", sent, came, buf[1], want)
		}
	}
	if sent < packets || came < packets {
		t.Errorf("%d packets were sent and %d came, too few to tell", sent, came)
	}
}

// isRoCE reports whether an IPv4 packet belongs to a RoCE queue pair, as data
// or acknowledgement. Queue pair 1 belongs to the connection manager, whose
// packets are not marked.
func isRoCE(packet []byte) bool {
	const roce, manager = 4791, 1
	return packet[9] == unix.IPPROTO_UDP && binary.BigEndian.Uint16(packet[22:]) == roce && binary.BigEndian.Uint32(packet[32:])&0xffffff != manager
}

// isIWARP reports whether an IPv4 packet belongs to a TCP connection to an RDMA
// server's port. The packets that end a connection are ignored, because they
// may be sent after its socket is gone.
func isIWARP(packet []byte) bool {
	const listens, finOrReset = 7474, 0x05
	ports := [2]uint16{binary.BigEndian.Uint16(packet[20:]), binary.BigEndian.Uint16(packet[22:])}
	return packet[9] == unix.IPPROTO_TCP && slices.Contains(ports[:], listens) && packet[33]&finOrReset == 0
}
