//go:build linux && cgo

package verbs

import (
	"bytes"
	"errors"
	"testing"

	"gdrcp/rdma"
)

func TestPrivateDataRoundTrip(t *testing.T) {
	for _, n := range []int{0, 1, 47, rdma.MaxPrivateDataBytes} {
		data := bytes.Repeat([]byte{0xa5}, n)
		b, err := encodePrivate(data)
		if err != nil {
			t.Fatalf("encode %d bytes: %v", n, err)
		}
		if len(b) > maxRequestBytes {
			t.Errorf("%d bytes of private data take %d, more than InfiniBand's %d", n, len(b), maxRequestBytes)
		}
		// Transports pad with zeros up to their maximum.
		for _, pad := range []int{0, 1, 140} {
			got, err := decodePrivate(append(bytes.Clone(b), make([]byte, pad)...))
			if err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes with %d of padding: got %x, %v", n, pad, got, err)
			}
		}
	}
	if _, err := encodePrivate(make([]byte, rdma.MaxPrivateDataBytes+1)); err == nil {
		t.Error("one byte too many was encoded")
	}
}

func TestPrivateDataRefused(t *testing.T) {
	good, err := encodePrivate([]byte("hello"))
	if err != nil {
		t.Fatal(err)
	}
	change := func(at int, v byte) []byte {
		b := bytes.Clone(good)
		b[at] = v
		return b
	}
	cases := []struct {
		name string
		b    []byte
		want error
	}{
		{"Empty", nil, rdma.ErrNotGdrcp},
		{"Zeros", make([]byte, 56), rdma.ErrNotGdrcp},
		{"HeaderCut", good[:wireHeaderBytes-1], rdma.ErrNotGdrcp},
		{"DataCut", good[:len(good)-1], rdma.ErrNotGdrcp},
		{"Magic", change(3, 'x'), rdma.ErrNotGdrcp},
		{"Length", change(5, 255), rdma.ErrNotGdrcp},
		{"Version", change(4, 9), errWireVersion(9)},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got, err := decodePrivate(c.b); !errors.Is(err, c.want) {
				t.Errorf("decoded %x, %v; want %v", got, err, c.want)
			}
		})
	}
}

func TestRejectRoundTrip(t *testing.T) {
	for code := rdma.RejectUnknown; code <= rdma.RejectResources; code++ {
		got, ok := decodeReject(append(encodeReject(code), make([]byte, 140)...))
		if !ok || got != code {
			t.Errorf("code %d came back as %d, %t", code, got, ok)
		}
	}
	for _, b := range [][]byte{nil, make([]byte, 148), encodeReject(1)[:rejectBytes-1]} {
		if code, ok := decodeReject(b); ok {
			t.Errorf("%x was taken for code %d", b, code)
		}
	}
}

func FuzzDecodePrivate(f *testing.F) {
	good, err := encodePrivate([]byte("hello"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(append(good, 0, 0, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		data, err := decodePrivate(b)
		if err != nil {
			return
		}
		again, err := encodePrivate(data)
		if err != nil {
			t.Fatalf("what was decoded is not encoded: %v", err)
		}
		if !bytes.HasPrefix(b, again) {
			t.Fatalf("%x decodes to what encodes as %x", b, again)
		}
	})
}

func FuzzDecodeReject(f *testing.F) {
	f.Add(encodeReject(rdma.RejectBusy))
	f.Fuzz(func(t *testing.T, b []byte) {
		code, ok := decodeReject(b)
		if ok && (len(b) < rejectBytes || encodeReject(code)[7] != b[7]) {
			t.Fatalf("%x decodes to %d", b, code)
		}
	})
}
