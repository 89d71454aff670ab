package program

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// towards is a direction of a connection.
type towards int

const (
	toServer towards = iota
	toClient
)

// proxy forwards bytes between a client and a server, and disturbs them like a bad
// network.
type proxy struct {
	listener net.Listener
	server   string
	// spoil, if it is not nil, may change the bytes. offset counts the bytes of that
	// direction of the connection. It returns how many of them to forward; if that is
	// less than all, the connection then stalls or is cut.
	spoil func(to towards, offset int64, b []byte) (pass int)
	// stall keeps the connection open after spoil has held bytes back; otherwise it is
	// cut.
	stall bool
	// bytesPerSecond limits each direction, see hurry. 0 means no limit.
	bytesPerSecond int
	// holdAfter, if it is not 0, is the number of bytes in the direction held, over all
	// connections, after which the rest waits for release.
	holdAfter int64
	held      towards
	release   func()

	released chan struct{}
	mu       sync.Mutex
	conns    []net.Conn
	passed   [2]int64
	closed   bool
	wg       sync.WaitGroup
}

// start begins to forward. The proxy ends with the test.
func (x *proxy) start(t testing.TB, server string) *proxy {
	t.Helper()
	var err error
	x.server, x.released = server, make(chan struct{})
	x.release = sync.OnceFunc(func() { close(x.released) })
	if x.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	x.wg.Go(x.accept)
	t.Cleanup(x.close)
	return x
}

func (x *proxy) addr() string { return x.listener.Addr().String() }

func (x *proxy) close() {
	x.release()
	x.listener.Close()
	x.mu.Lock()
	x.closed = true
	for _, c := range x.conns {
		c.Close()
	}
	x.mu.Unlock()
	x.wg.Wait()
}

// own records a connection that close must end. It returns false if it is too late.
func (x *proxy) own(c net.Conn) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed {
		c.Close()
		return false
	}
	x.conns = append(x.conns, c)
	return true
}

func (x *proxy) accept() {
	for {
		client, err := x.listener.Accept()
		if err != nil {
			return
		}
		x.mu.Lock()
		to := x.server
		x.mu.Unlock()
		server, err := net.Dial("tcp", to)
		if err != nil {
			client.Close()
			continue
		}
		if !x.own(client) || !x.own(server) {
			client.Close()
			server.Close()
			return
		}
		x.wg.Go(func() { x.pass(toServer, client, server) })
		x.wg.Go(func() { x.pass(toClient, server, client) })
	}
}

// pass copies one direction and forwards the end of the stream. If writing fails, only
// this direction ends: data already sent in the other one is still forwarded. Any other
// error ends both.
func (x *proxy) pass(to towards, from, into net.Conn) {
	buf := make([]byte, 64<<10)
	var due time.Time // when everything so far should have passed
	for offset := int64(0); ; {
		b, rate := buf, x.rate()
		if rate > 0 {
			b = b[:min(len(b), max(1, rate/100))]
		}
		n, err := from.Read(b)
		pass := n
		if x.spoil != nil && n > 0 {
			pass = x.spoil(to, offset, b[:n])
		}
		x.hold(to)
		_, werr := into.Write(b[:pass])
		x.count(to, pass)
		switch {
		case pass < n && x.stall:
			_, _ = io.Copy(io.Discard, from) // until the sender ends
		case err == io.EOF && pass == n && werr == nil:
			_ = into.(*net.TCPConn).CloseWrite() // it may already be gone
			return
		case err == nil && pass == n && werr == nil:
			offset += int64(n)
			if rate > 0 {
				// A busy machine wakes late: this makes up for it.
				if most := time.Now().Add(-time.Second); due.Before(most) {
					due = most
				}
				due = due.Add(time.Duration(n) * time.Second / time.Duration(rate))
				time.Sleep(time.Until(due))
			}
			continue
		case werr != nil && pass == n:
			return
		}
		from.Close()
		into.Close()
		return
	}
}

// lead makes new connections go to another server.
func (x *proxy) lead(server string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = server
}

// hold blocks, once enough has passed, until release.
func (x *proxy) hold(to towards) {
	if x.holdAfter > 0 && to == x.held && x.total(to) >= x.holdAfter {
		<-x.released
	}
}

// holdsData returns a proxy that keeps a copy in progress until release, whatever the
// speed of copy and test: that much data passes before, and the rest after.
func holdsData(d direction, after int64) *proxy {
	x := &proxy{holdAfter: after, held: toClient}
	if d.push {
		x.held = toServer
	}
	return x
}

func (x *proxy) rate() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.bytesPerSecond
}

// hurry removes the limit from now on.
func (x *proxy) hurry() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.bytesPerSecond = 0
}

func (x *proxy) count(to towards, n int) {
	x.mu.Lock()
	x.passed[to] += int64(n)
	x.mu.Unlock()
}

// total returns how many bytes passed in a direction.
func (x *proxy) total(to towards) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passed[to]
}
