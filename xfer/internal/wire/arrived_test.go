package wire

import (
	"errors"
	"slices"
	"testing"

	"gdrcp/manifest"
)

func TestArrivedRoundTrip(t *testing.T) {
	for _, h := range []manifest.Algorithm{manifest.XXH3, manifest.BLAKE3, manifest.CRC32C} {
		for _, pieces := range []uint64{1, 2, 3, 64, 65, 1 << 40, MaxFileBytes} {
			a := Arrived{Entry: 7, Pieces: pieces, Nodes: make([]manifest.Digest, manifest.NodeCount(pieces))}
			for i := range a.Nodes {
				a.Nodes[i][0] = byte(i)
			}
			body := a.Encode(h)
			if got, err := DecodeArrived(body, h); err != nil || got.Entry != 7 || got.Pieces != pieces || !slices.Equal(got.Nodes, a.Nodes) || len(body) > MaxBodyBytes {
				t.Errorf("%s, %d pieces: %+v, %v", h, pieces, got, err)
			}
			for _, bad := range [][]byte{body[:len(body)-1], append(slices.Clone(body), 0), body[:1]} {
				if _, err := DecodeArrived(bad, h); !errors.Is(err, ErrProtocol) {
					t.Errorf("%s, %d bytes of %d: %v", h, len(bad), len(body), err)
				}
			}
		}
	}
}

func FuzzArrived(f *testing.F) {
	f.Add((&Arrived{Entry: 1, Pieces: 3, Nodes: make([]manifest.Digest, 2)}).Encode(manifest.XXH3))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeArrived(b, manifest.XXH3)
		if err == nil && len(a.Nodes) != manifest.NodeCount(a.Pieces) {
			t.Fatalf("%d nodes of %d pieces", len(a.Nodes), a.Pieces)
		}
	})
}
