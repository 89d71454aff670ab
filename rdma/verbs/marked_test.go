//go:build linux && cgo

package verbs

import (
	"encoding/binary"
	"net"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestMarkedPackets looks at a network interface while somebody else copies over
// it by RoCE (tests/program/two-guests): what is sent and what comes must have
// the type of service that GDRCP_TEST_MARKED says after the interface's name.
func TestMarkedPackets(t *testing.T) {
	name, value, ok := strings.Cut(os.Getenv("GDRCP_TEST_MARKED"), "=")
	if !ok {
		t.Skip("GDRCP_TEST_MARKED=interface=number names no packets to look at: run tests/program/two-guests")
	}
	want, err := strconv.Atoi(value)
	if err != nil {
		t.Fatal(err)
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
	// Data and acknowledgements; the queue pair of the connection manager is
	// number 1 and not of this class.
	const packets, roce, managers = 20, 4791, 1
	sent, came := 0, 0
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(60 * time.Second); time.Now().Before(end) && (sent < packets || came < packets); {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if err != nil || n < 40 || buf[0] != 0x45 || buf[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(buf[22:]) != roce {
			continue
		}
		if pair := binary.BigEndian.Uint32(buf[32:]) & 0xffffff; pair == managers {
			continue
		}
		if from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING {
			sent++
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
