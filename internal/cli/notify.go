package cli

import (
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// notifier reports a server's state to the service manager by the protocol of
// sd_notify(3): datagrams to the socket that NOTIFY_SOCKET names, which is a path or,
// after @, a name in the abstract namespace. The zero notifier reports nothing.
type notifier struct{ socket string }

// notifyPatience is how long a message may wait while the manager's socket is full.
const notifyPatience = 5 * time.Second

// ready reports that clients are served, from now on or again.
func (n notifier) ready() error { return n.tell("READY=1") }

// reloading reports a reload, after which ready follows. Its timestamp lets the manager
// put the two in order (systemd requires it with Type=notify-reload).
func (n notifier) reloading() error {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		return fmt.Errorf("read the clock: %w", err)
	}
	return n.tell(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", now.Nano()/1000))
}

// stopping reports that the server is ending.
func (n notifier) stopping() error { return n.tell("STOPPING=1") }

func (n notifier) tell(state string) error {
	if n.socket == "" {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.socket, Net: "unixgram"})
	if err != nil {
		return fmt.Errorf("tell the service manager at NOTIFY_SOCKET: %w", err)
	}
	defer c.Close()
	err = c.SetWriteDeadline(time.Now().Add(notifyPatience))
	if err == nil {
		_, err = c.Write([]byte(state))
	}
	if err != nil {
		return fmt.Errorf("tell the service manager at NOTIFY_SOCKET: %w", err)
	}
	return nil
}
