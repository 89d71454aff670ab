package xfer

import (
	"testing"

	"gdrcp/trust"
)

// A name that no key has costs what one costs that a key has, and makes nothing:
// else the time of a refusal would tell them apart.
func TestUnknownNamesCostTheSame(t *testing.T) {
	v := NewServer(ServerConfig{Keys: twoKeys(t.TempDir())})
	if first, known := v.secretOf("nobody"); known || first == (trust.Secret{}) || first == testKey.Secret {
		t.Fatal("a name that no key has got another's secret, or none")
	}
	a, _ := v.secretOf("nobody")
	b, _ := v.secretOf("nobody too")
	if other, _ := NewServer(ServerConfig{Keys: twoKeys("")}).secretOf("nobody"); a != b || a == other {
		t.Error("the secret is not one for each server")
	}
	refusal := func(id string) float64 {
		_, first, err := trust.Open(trust.Key{ID: id, Secret: trust.NewSecret([32]byte{77})}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return testing.AllocsPerRun(100, func() {
			if _, _, _, err := trust.Answer(first, nil, v.secretOf); err == nil {
				t.Error("it was answered")
			}
		})
	}
	if known, unknown := refusal("test"), refusal("none"); known != unknown {
		t.Errorf("%v allocations for a key's name, %v for another", known, unknown)
	}
}

func BenchmarkRefusal(b *testing.B) {
	v := NewServer(ServerConfig{Keys: twoKeys("")})
	for _, id := range []string{"test", "none"} {
		b.Run(id, func(b *testing.B) {
			_, first, err := trust.Open(trust.Key{ID: id, Secret: trust.NewSecret([32]byte{77})}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				_, _, _, _ = trust.Answer(first, nil, v.secretOf)
			}
		})
	}
}
