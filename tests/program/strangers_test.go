package program

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/rdma/rdmatest"
)

// stranger listens, and calls meet with each connection.
func stranger(t *testing.T, meet func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				meet(c)
			}()
		}
	}()
	return l.Addr().String()
}

// TestStrangerAsServer points the client at servers that are not gdrcp.
func TestStrangerAsServer(t *testing.T) {
	onHost(t)
	rdmatest.BesideOthers(t)
	web := &http.Server{Handler: http.NotFoundHandler()}
	defer web.Close()
	webListener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	go func() { _ = web.Serve(webListener) }() // until Close
	hear := func(c net.Conn) { _, _ = io.Copy(io.Discard, c) }
	for _, c := range []struct{ name, addr, pattern string }{
		{"closes at once", stranger(t, func(net.Conn) {}), `.`},
		{"reads a little and closes", stranger(t, func(c net.Conn) { _, _ = c.Read(make([]byte, 16)) }), `.`},
		{"garbage", stranger(t, func(c net.Conn) {
			_, _ = io.CopyN(c, noise(1), 64<<10)
			hear(c)
		}), `(?s)speak gdrcp.*hint: something else listens`},
		{"zeros without end", stranger(t, func(c net.Conn) {
			for b := make([]byte, 4096); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}), `speak gdrcp`},
		{"greets as ssh does", stranger(t, func(c net.Conn) {
			_, _ = io.WriteString(c, "SSH-2.0-OpenSSH_9.2p1 Debian-2\r\n")
			hear(c)
		}), `.`},
		{"a web server", webListener.Addr().String(), `speak gdrcp`},
		{"never answers", stranger(t, hear), `(?s)hint: check host and port`},
		{"a byte a second", stranger(t, func(c net.Conn) {
			for {
				if _, err := c.Write([]byte{0}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		}), `.`},
	} {
		t.Run(c.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, d direction) {
				t.Parallel()
				dir := t.TempDir()
				write(t, dir+"/file", "content")
				s := &sides{here: dir}
				p := start(t, how{}, append(s.operands(d, c.addr, "file", "copy"), "--transport", "tcp", "--retries", "0")...)
				p.wait(bounded())
				p.wantFailure(1, c.pattern)
				if _, err := os.Lstat(dir + "/copy"); err == nil {
					t.Error("a failed copy left a file")
				}
			})
		})
	}
}

// TestStrangerAsClient connects clients that are not gdrcp to a server, which drops
// them and continues to serve.
func TestStrangerAsClient(t *testing.T) {
	onHost(t)
	s := newSides(t, tcpLink())
	write(t, s.here+"/file", "content")
	for i, say := range []string{
		"", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", "SSH-2.0-OpenSSH_9.2p1\r\n", "\x00", "GDCP", string(make([]byte, 100_000)), garbage(100_000),
	} {
		t.Run(fmt.Sprintf("%d: %.12q", i, say), func(t *testing.T) {
			t.Parallel()
			c, err := net.Dial("tcp", s.addr())
			must(t, err)
			defer c.Close()
			_, _ = io.WriteString(c, say) // the server may have closed the connection
			must(t, c.SetReadDeadline(time.Now().Add(bounded())))
			if _, err := io.Copy(io.Discard, c); os.IsTimeout(err) {
				t.Errorf("after %v the server has not hung up", bounded())
			}
			s.copy(t, s.here+"/file", s.url(fmt.Sprintf("copy%d", i))).wantCode(0)
		})
	}
	t.Cleanup(func() { s.stop() })
}

func garbage(n int) string {
	b := make([]byte, n)
	_, _ = noise(5).Read(b) // noise never fails
	return string(b)
}

// cutCase is a small copy through a bad network.
type cutCase struct {
	sides *sides
	d     direction
	from  string
	count atomic.Int64
}

// newCutCase makes its files: one of several pieces, and small ones.
func newCutCase(t *testing.T, d direction) *cutCase {
	t.Helper()
	c := &cutCase{sides: newSides(t, tcpLink()), d: d}
	c.from, _ = c.sides.ends(d)
	makeTree(t, c.from+"/tree", 30, 3)
	makeFile(t, c.from+"/tree/pieces", 5*mib/2, 4)
	return c
}

// through copies the tree through the proxy, to a new name, and checks what must hold
// whatever the network does.
func (c *cutCase) through(t *testing.T, x *proxy, limit time.Duration, options ...string) *process {
	t.Helper()
	return c.copyVia(t, x.start(t, c.sides.addr()).addr(), limit, options...)
}

// copyVia copies the tree through an address, with the same checks.
func (c *cutCase) copyVia(t *testing.T, addr string, limit time.Duration, options ...string) *process {
	t.Helper()
	name := fmt.Sprintf("copy%d", c.count.Add(1))
	_, to := c.sides.ends(c.d)
	args := append(c.sides.operands(c.d, addr, "tree", name), "-rl", "--transport", "tcp", "--retries", "0", "--slots", "2")
	p := start(t, how{}, append(args, options...)...)
	code := p.wait(limit)
	if code == 0 {
		sameTree(t, c.from+"/tree", to+"/"+name, false)
		return p
	}
	if code != 1 && code != 3 && code != 4 {
		t.Errorf("exit code %d: %s", code, p)
	}
	if code != 3 {
		p.oneLine()
	}
	noneWrong(t, c.from+"/tree", to+"/"+name)
	if !c.d.push { // the server may still be cleaning up
		noTemps(t, to+"/"+name)
	}
	return p
}

// end copies once more, without a proxy.
func (c *cutCase) end(t *testing.T) {
	t.Helper()
	_, to := c.sides.ends(c.d)
	c.sides.copy(t, append(c.sides.operands(c.d, c.sides.via(), "tree", "last"), "-rl")...).wantCode(0)
	sameTree(t, c.from+"/tree", to+"/last", false)
	c.sides.stop()
	noTemps(t, to)
}
