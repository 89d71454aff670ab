package tcp

import (
	"sync/atomic"
	"time"
)

// inboxBytes is the size of the read-ahead for headers and small payloads.
const inboxBytes = 4096

// inbox reads from a socket: headers and small payloads through a small buffer,
// large payloads directly to their destination. Only lastHeard may be called
// from another goroutine.
type inbox struct {
	sock Stream
	buf  [inboxBytes]byte
	r, w int // buf[r:w] is read but not yet consumed
	born time.Time
	// heardNs is when bytes last arrived, in ns of the monotonic clock since born.
	heardNs atomic.Int64
}

func (b *inbox) init(sock Stream) { b.sock, b.born = sock, time.Now() }

func (b *inbox) lastHeard() time.Time { return b.born.Add(time.Duration(b.heardNs.Load())) }

// read is one read from the socket.
func (b *inbox) read(dst []byte) (int, error) {
	n, err := b.sock.Read(dst)
	if n > 0 {
		b.heardNs.Store(int64(time.Since(b.born)))
	}
	return n, err
}

// fill reads until n bytes are in the buffer; n is at most inboxBytes.
func (b *inbox) fill(n int) error {
	if b.w-b.r >= n {
		return nil
	}
	b.w = copy(b.buf[:], b.buf[b.r:b.w])
	b.r = 0
	for b.w < n {
		got, err := b.read(b.buf[b.w:])
		b.w += got
		if err != nil {
			return err
		}
	}
	return nil
}

// header returns the next frameBytes bytes, which are valid until the next call.
func (b *inbox) header() ([]byte, error) {
	if err := b.fill(frameBytes); err != nil {
		return nil, err
	}
	header := b.buf[b.r : b.r+frameBytes]
	b.r += frameBytes
	return header, nil
}

// payload fills dst.
func (b *inbox) payload(dst []byte) error {
	for {
		n := copy(dst, b.buf[b.r:b.w])
		b.r += n
		dst = dst[n:]
		if len(dst) == 0 {
			return nil
		}
		if len(dst) < inboxBytes {
			if err := b.fill(1); err != nil {
				return err
			}
			continue
		}
		n, err := b.read(dst)
		if err != nil {
			return err
		}
		dst = dst[n:]
	}
}

// discard reads until the end of the stream or the socket's deadline.
func (b *inbox) discard() {
	for {
		if _, err := b.read(b.buf[:]); err != nil {
			return
		}
	}
}
