package door

import (
	"testing"

	"gdrcp/internal/trust"
)

// For a name that no key has no secret is made: the time that takes would tell it
// from the name of a key. BenchmarkRefusal has both.
func TestUnknownNamesHaveOneSecret(t *testing.T) {
	d := NewServer(Config{Keys: keysOf(firstKey, secondKey)})
	if first, known := d.secretOf("nobody"); known || first == (trust.Secret{}) || first == firstKey.Secret {
		t.Fatal("a name that no key has got another's secret, or none")
	}
	a, _ := d.secretOf("nobody")
	b, _ := d.secretOf("nobody too")
	if other, _ := NewServer(Config{Keys: keysOf(firstKey, secondKey)}).secretOf("nobody"); a != b || a == other {
		t.Error("the secret is not one for each server")
	}
}

func BenchmarkRefusal(b *testing.B) {
	d := NewServer(Config{Keys: keysOf(firstKey, secondKey)})
	for _, id := range []string{"test", "none"} {
		b.Run(id, func(b *testing.B) {
			_, first, err := trust.Open(trust.Key{ID: id, Secret: trust.NewSecret([32]byte{77})}, nil)
			if err != nil {
				b.Fatal(err)
			}
			for b.Loop() {
				_, _, _, _ = trust.Answer(first, nil, d.secretOf)
			}
		})
	}
}
