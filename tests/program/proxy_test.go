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

// proxy stands between a client and a server and does to their bytes what a
// bad network would.
type proxy struct {
	listener net.Listener
	server   string
	// spoil, where there is one, may change what passes. offset counts the
	// bytes of that direction of the connection. It returns how many of them to
	// pass on; after fewer than all what end says happens.
	spoil func(to towards, offset int64, b []byte) (pass int)
	// stall keeps the connection open after spoil has let less pass than came;
	// otherwise it is cut.
	stall bool
	// bytesPerSecond bounds each direction, see hurry; 0: as fast as it goes.
	bytesPerSecond int
	// holdAfter, where it is not 0, is after how many bytes in the direction of held, of all
	// connections together, the rest waits for release.
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

// start begins to pass on. The test's end ends it.
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

// own keeps a connection for close to end; false means that it is too late.
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

// pass copies one direction. The end of what comes is passed on as such. Where
// nothing is taken any more only this direction ends: what was said in the other one
// before is still passed on. All else ends both.
func (x *proxy) pass(to towards, from, into net.Conn) {
	buf := make([]byte, 64<<10)
	var due time.Time // when all that has passed was to have passed
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
			_, _ = io.Copy(io.Discard, from) // until an end has had enough
		case err == io.EOF && pass == n && werr == nil:
			_ = into.(*net.TCPConn).CloseWrite() // it may be gone by now
			return
		case err == nil && pass == n && werr == nil:
			offset += int64(n)
			if rate > 0 {
				// A busy machine wakes late: what is missed by that is made up for.
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

// lead has connections that come from now on go to another server.
func (x *proxy) lead(server string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.server = server
}

// hold keeps what comes waiting where enough has passed, until release.
func (x *proxy) hold(to towards) {
	if x.holdAfter > 0 && to == x.held && x.total(to) >= x.holdAfter {
		<-x.released
	}
}

// holdsData is a proxy that keeps a copy under way until release, however fast it and slow
// the test goes: so much of the data passes before, and the rest after.
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

// hurry lets all pass as fast as it goes from now on.
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

// total is how many bytes passed in a direction.
func (x *proxy) total(to towards) int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.passed[to]
}
