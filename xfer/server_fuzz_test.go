package xfer

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/door"
	"gdrcp/xfer/internal/wire"
)

// FuzzDoor sends arbitrary bytes to a server's door: as the first message, or, if proven is set,
// under the seal from a handshake. The server hangs up, and grants nothing without a proof.
func FuzzDoor(f *testing.F) {
	_, first, err := trust.Open(testKey, doorOpening(1))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(false, first)
	f.Add(false, []byte{0})
	f.Add(false, append([]byte{4}, "test"...))
	f.Add(true, []byte{wire.DoorProof})
	f.Add(true, []byte{wire.DoorProof, 0})
	for _, wish := range []wire.DoorWish{{GPU: wire.GPUAuto}, {GPU: wire.GPUFirst + 7}, {GPU: wire.GPUNamed, Name: "MIG-12ab"}, {GPU: wire.GPUNamed + 1}, {Name: "\x1b"}, {Slots: 100, QPs: 8}, {Slots: 1 << 20}} {
		f.Add(true, append([]byte{wire.DoorProof}, wish.Encode()...))
	}
	f.Add(true, []byte{})
	w := byTCP()
	v := NewServer(ServerConfig{Keys: OneKey(testKey, Admission{Root: DirRoot(f.TempDir())}), Timeouts: shortTimeouts()})
	addr, err := v.Listen(w.provider, netip.AddrPortFrom(w.addr, 0), rdma.Device{})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- v.Serve(ctx) }()
	f.Cleanup(func() {
		cancel()
		<-served
	})
	f.Fuzz(func(t *testing.T, proven bool, said []byte) {
		if len(said) > door.MsgBytes-trust.SealBytes {
			return
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p := door.Preamble{QPs: 1, Slots: 1, ChunkKiB: 1024}
		if _, err := rand.Read(p.Session[:]); err != nil {
			t.Fatal(err)
		}
		c := atDoor(t, w, addr, testKey, p.Encode())
		isProof := false
		if proven && len(said) > 0 && said[0] == wire.DoorProof {
			_, err := wire.DecodeDoorWish(said[1:])
			isProof = err == nil
		}
		if proven {
			if err := c.proves(ctx); err != nil {
				t.Fatal(err)
			}
			said = c.Seal.Seal(nil, said)
		}
		if err := c.Post(ctx, said); err != nil {
			t.Fatal(err)
		}
		for {
			msg, err := c.Take(ctx)
			switch {
			case errors.Is(err, rdma.ErrDisconnected):
				return
			case err != nil:
				t.Fatalf("the door does not close: %v", err)
			case !proven && !bytes.Equal(msg, []byte{0}):
				t.Fatalf("a first message that no key made is answered by %d bytes", len(msg))
			case proven:
				plain, err := c.Open.Open(msg)
				if err != nil || len(plain) == 0 {
					t.Fatalf("%d bytes: %v", len(msg), err)
				}
				if plain[0] == wire.DoorGrant && !isProof {
					t.Fatalf("%d bytes that are no proof are granted a session", len(said)-trust.SealBytes)
				}
				if plain[0] == wire.DoorGrant {
					return
				}
			}
		}
	})
}
