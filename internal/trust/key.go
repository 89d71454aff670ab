package trust

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unique"
)

// ErrBadKey is a key, or the name of one, that cannot be used.
var ErrBadKey = errors.New("bad key")

// SecretBytes is the length of a secret.
const SecretBytes = 32

// Secret is what both ends of a copy know and nobody else. However it is
// formatted, it does not show: fmt calls no methods of what lies in an unexported
// field, and prints what it finds, but follows at the most one pointer there. The
// bytes are behind two. Secrets of the same bytes are equal; the zero Secret is
// all zeros, which no key has.
type Secret struct {
	bytes unique.Handle[unique.Handle[[SecretBytes]byte]]
}

// NewSecret is the secret of these bytes.
func NewSecret(b [SecretBytes]byte) Secret {
	if b == [SecretBytes]byte{} {
		return Secret{}
	}
	return Secret{unique.Make(unique.Make(b))}
}

// Bytes are the secret's, in memory of the caller's own.
func (s Secret) Bytes() []byte {
	var b [SecretBytes]byte
	if s != (Secret{}) {
		b = s.bytes.Value().Value()
	}
	return b[:]
}

// String implements fmt.Stringer.
func (Secret) String() string { return "secret" }

// Format implements fmt.Formatter, for every verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte("secret")) }

// MarshalText keeps secrets out of JSON and its like.
func (Secret) MarshalText() ([]byte, error) { return nil, errors.New("a secret must not be written") }

// Key is a secret and the name by which a server finds it. The name is no
// secret: it travels in the clear.
type Key struct {
	ID     string
	Secret Secret
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// MaxIDBytes bounds the name of a key.
const MaxIDBytes = 64

// CheckID refuses what is no name of a key: 1 to 64 letters, digits, dots,
// dashes and underscores.
func CheckID(id string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	foreign := func(r rune) bool { return !strings.ContainsRune(letters, r) }
	if len(id) == 0 || len(id) > MaxIDBytes || strings.ContainsFunc(id, foreign) {
		return fmt.Errorf("%w: a key's name is 1 to %d of A-Z a-z 0-9 . _ -", ErrBadKey, MaxIDBytes)
	}
	return nil
}

// NewKey makes a key of that name with a random secret.
func NewKey(id string) (Key, error) {
	k := Key{ID: id}
	if err := CheckID(id); err != nil {
		return Key{}, err
	}
	k.Secret = RandomSecret()
	return k, nil
}

// RandomSecret makes a secret that nobody else has. Without randomness the
// program ends (crypto/rand.Read).
func RandomSecret() Secret {
	var b [SecretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return NewSecret(b)
}
