package main

import (
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// payloadBytes is more than a client says before it sends its file's bytes.
const payloadBytes = 64 << 10

// relay passes TCP connections on to target and notes when a client's payload
// came by: gdrcp's own word is not needed to tell when its first byte was on the wire.
type relay struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu      sync.Mutex
	payload time.Time // when one connection's client had sent payloadBytes; zero: not yet
}

// startRelay listens on a free port of the loopback interface.
func startRelay(target string) (*relay, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("start relay: %w", err)
	}
	r := &relay{listener: l, target: target}
	r.wg.Go(r.accept)
	return r, nil
}

func (r *relay) address() string { return r.listener.Addr().String() }

// stop ends the relay once its connections have ended, which is their ends' affair.
func (r *relay) stop() {
	r.listener.Close()
	r.wg.Wait()
}

// reset forgets when payload came by.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.payload = time.Time{}
}

// firstPayload is when payload first came by since reset.
func (r *relay) firstPayload() (time.Time, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.payload.IsZero() {
		return time.Time{}, fmt.Errorf("no connection carried %d bytes through the relay", payloadBytes)
	}
	return r.payload, nil
}

func (r *relay) accept() {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return // stopped
		}
		server, err := net.Dial("tcp", r.target)
		if err != nil {
			client.Close() // its client complains
			continue
		}
		r.wg.Go(func() { r.connect(client.(*net.TCPConn), server.(*net.TCPConn)) })
	}
}

// connect passes both directions on until each has ended.
func (r *relay) connect(client, server *net.TCPConn) {
	defer client.Close()
	defer server.Close()
	var back sync.WaitGroup
	back.Go(func() { pass(client, server) })
	pass(server, &counted{Reader: client, relay: r})
	back.Wait()
}

// pass copies one direction of a connection until it ends, and ends it on the other side.
func pass(to *net.TCPConn, from io.Reader) {
	io.Copy(to, from) // an error ends the connection, which is what both ends see
	to.CloseWrite()
}

// counted notes when enough was read of a connection.
type counted struct {
	io.Reader
	relay *relay
	bytes int
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	before := c.bytes
	c.bytes += n
	if before < payloadBytes && c.bytes >= payloadBytes {
		c.relay.mu.Lock()
		defer c.relay.mu.Unlock()
		if c.relay.payload.IsZero() {
			c.relay.payload = time.Now()
		}
	}
	return n, err
}
