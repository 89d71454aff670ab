package trust

import (
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"unique"
)

// ErrBadKey is the error for an invalid key, or an invalid name of a key.
var ErrBadKey = errors.New("bad key")

// SecretBytes is the length of a secret.
const SecretBytes = 32

// Secret is known only to the two ends of a copy. No formatting prints it. For an
// unexported field fmt calls no methods, and prints the values that it finds, but it
// follows at most one pointer there; therefore the bytes are behind two pointers. Secrets
// with the same bytes are equal. The zero Secret is all zeros, which no key has.
type Secret struct {
	bytes unique.Handle[unique.Handle[[SecretBytes]byte]]
}

// NewSecret returns the secret with these bytes.
func NewSecret(b [SecretBytes]byte) Secret {
	if b == [SecretBytes]byte{} {
		return Secret{}
	}
	return Secret{unique.Make(unique.Make(b))}
}

// Bytes returns a copy of the secret's bytes.
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

// MarshalText keeps secrets out of JSON and similar formats.
func (Secret) MarshalText() ([]byte, error) { return nil, errors.New("a secret must not be written") }

// Key is a secret and the name by which a server finds it. The name is not
// secret: it is sent in the clear.
type Key struct {
	ID     string
	Secret Secret
}

// IsZero reports whether there is no key.
func (k Key) IsZero() bool { return k == Key{} }

// MaxIDBytes bounds the name of a key.
const MaxIDBytes = 64

// CheckID refuses an invalid name of a key. A name has 1 to 64 letters, digits,
// dots, dashes and underscores.
func CheckID(id string) error {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-"
	foreign := func(r rune) bool { return !strings.ContainsRune(letters, r) }
	if len(id) == 0 || len(id) > MaxIDBytes || strings.ContainsFunc(id, foreign) {
		return fmt.Errorf("%w: a key's name is 1 to %d of A-Z a-z 0-9 . _ -", ErrBadKey, MaxIDBytes)
	}
	return nil
}

// NewKey returns a key with the given name and a random secret.
func NewKey(id string) (Key, error) {
	k := Key{ID: id}
	if err := CheckID(id); err != nil {
		return Key{}, err
	}
	k.Secret = RandomSecret()
	return k, nil
}

// RandomSecret returns a random secret. If no randomness is available the
// program ends (crypto/rand.Read).
func RandomSecret() Secret {
	var b [SecretBytes]byte
	_, _ = rand.Read(b[:]) // never fails
	return NewSecret(b)
}
