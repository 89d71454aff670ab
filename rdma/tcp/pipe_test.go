package tcp

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"golang.org/x/net/nettest"
)

func TestPipeIsConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		near, far := newPipeEnds()
		return near, far, func() { near.Close(); far.Close() }, nil
	})
}

// TestPipeBuffers writes several buffers with one call, some of them empty, and
// reads them in parts of other sizes.
func TestPipeBuffers(t *testing.T) {
	near, far := newPipeEnds()
	defer near.Close()
	defer far.Close()
	random := rand.New(rand.NewPCG(1, 2))
	var want bytes.Buffer
	var batches [][][]byte
	for range 200 {
		var batch [][]byte
		for range 1 + random.IntN(8) {
			part := make([]byte, random.IntN(3)*random.IntN(5000))
			for i := range part {
				part[i] = byte(random.Uint32())
			}
			want.Write(part)
			batch = append(batch, part)
		}
		batches = append(batches, batch)
	}
	written := make(chan error, 1)
	go func() {
		for _, batch := range batches {
			if err := near.writeBuffers(batch); err != nil {
				written <- err
				return
			}
		}
		written <- near.CloseWrite()
	}()
	var got bytes.Buffer
	part := make([]byte, 7000)
	for {
		n, err := far.Read(part[:1+random.IntN(len(part))])
		got.Write(part[:n])
		if err == io.EOF {
			break
		}
		if err != nil || n == 0 {
			t.Fatalf("read %d bytes: %v", n, err)
		}
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes arrived, which are not the %d that were written", got.Len(), want.Len())
	}
}

// TestPipeLetsGoOfMemory ends a Write in the middle, in each possible way, and
// checks that the reader gets nothing that is put into the buffer afterwards.
func TestPipeLetsGoOfMemory(t *testing.T) {
	for name, c := range map[string]struct {
		end          func(near, far *pipeEnd) error
		write, reads error
	}{
		"Deadline":    {func(near, _ *pipeEnd) error { return near.SetWriteDeadline(time.Now()) }, os.ErrDeadlineExceeded, os.ErrDeadlineExceeded},
		"OwnClose":    {func(near, _ *pipeEnd) error { return near.Close() }, net.ErrClosed, io.EOF},
		"CloseWrite":  {func(near, _ *pipeEnd) error { return near.CloseWrite() }, syscall.EPIPE, io.EOF},
		"PeersClose":  {func(_, far *pipeEnd) error { return far.Close() }, syscall.EPIPE, net.ErrClosed},
		"AllOfItRead": {func(_, far *pipeEnd) error { _, err := io.ReadFull(far, make([]byte, 90)); return err }, nil, os.ErrDeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			near, far := newPipeEnds()
			defer near.Close()
			defer far.Close()
			type result struct {
				n   int
				err error
			}
			mem := make([]byte, 100)
			wrote := make(chan result, 1)
			go func() {
				n, err := near.Write(mem)
				wrote <- result{n, err}
			}()
			if _, err := io.ReadFull(far, make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
			select {
			case got := <-wrote:
				t.Fatalf("the write ended before its bytes were read: %+v", got)
			case <-time.After(10 * time.Millisecond):
			}
			if err := c.end(near, far); err != nil {
				t.Fatal(err)
			}
			got := <-wrote
			if !errors.Is(got.err, c.write) || (c.write != nil && got.n != 10) || (c.write == nil && got.n != 100) {
				t.Errorf("the write ended with %d bytes, %v", got.n, got.err)
			}
			fill := bytes.Repeat([]byte{1}, len(mem))
			copy(mem, fill)
			if c.reads == os.ErrDeadlineExceeded {
				if err := far.SetReadDeadline(time.Now().Add(10 * time.Millisecond)); err != nil {
					t.Fatal(err)
				}
			}
			if n, err := far.Read(mem); n != 0 || !errors.Is(err, c.reads) {
				t.Errorf("read %d bytes of a write that has ended: %v", n, err)
			}
		})
	}
}
