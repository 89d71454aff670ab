package xfer

import (
	"os"

	"gdrcp/internal/trust"
	"gdrcp/xfer/internal/door"
)

// Keyring knows which clients are admitted. Its methods are called concurrently, for every
// connection. They must not block.
type Keyring interface {
	// Len is how many keys exist. A single key need not leave anything to others.
	Len() int
	// Find returns what the holder of the key of that name may do. The name comes from a client
	// that has proven nothing. It only has the form of one (trust.CheckID).
	Find(keyID string) (Admission, bool)
}

// Root is a directory that is served. Roots are compared with ==: as long as a key opens the same
// directory, its Root must remain equal.
type Root interface {
	// Open returns the directory for one session, and the session closes it. An *fs.PathError
	// contains this host's path, which is not sent to any peer.
	Open() (*os.Root, error)
	// HasMoved reports whether the path of the directory that Open returns now leads elsewhere, or
	// nowhere.
	HasMoved() bool
}

// Admission is what the holder of a key may do.
type Admission struct {
	Secret trust.Secret
	// Root is the directory that is served. Nil means the user's own files, with the rights of this
	// process, and with paths used unchanged.
	Root     Root
	ReadOnly bool
	// AllAttributes lets a pull have the extended attributes of all namespaces below Root, and not
	// only those of user. Without a Root this is always permitted.
	AllAttributes bool
	// RequireEncrypt refuses sessions whose chunks are not encrypted.
	RequireEncrypt bool
	// ReadOnlyKey and EncryptKey say that ReadOnly and RequireEncrypt are this key's, and not the
	// server's: a refusal says which.
	ReadOnlyKey, EncryptKey bool
	// MaxSessions is how many concurrent sessions the key may have. 0 means that the key has no
	// bound of its own.
	MaxSessions int
	// BytesPerSecond bounds what all of the key's sessions move together, counting both directions.
	// 0 means no bound.
	BytesPerSecond int64
	// Only is the one copy that the holder may make. Nil means any number of copies of any kind.
	// Each Find must return the same pointer, because Recheck ends the sessions of a key whose Only
	// has changed.
	Only *OneCopy
}

// OneKey is a keyring of one key.
func OneKey(k trust.Key, a Admission) Keyring {
	a.Secret = k.Secret
	return oneKey{k.ID, a}
}

type oneKey struct {
	id string
	a  Admission
}

func (oneKey) Len() int { return 1 }

func (k oneKey) Find(id string) (Admission, bool) { return k.a, id == k.id }

// keyScope is what a key gives access to.
type keyScope struct {
	Root     Root
	ReadOnly bool
	// AllAttributes is as in Admission.
	AllAttributes bool
	ReadOnlyKey   string // whose ReadOnly it is; empty: the server's
	Only          *OneCopy
}

// doorKeys is a keyring as the door sees it. The door decides which clients are admitted. The
// session after it decides what they may access.
type doorKeys struct{ keys Keyring }

func (k doorKeys) Len() int { return k.keys.Len() }

func (k doorKeys) Find(id string) (door.Admission, bool) {
	a, ok := k.keys.Find(id)
	opens := keyScope{Root: a.Root, ReadOnly: a.ReadOnly, AllAttributes: a.AllAttributes, Only: a.Only}
	if a.ReadOnlyKey {
		opens.ReadOnlyKey = id
	}
	return door.Admission{
		Secret: a.Secret, Opens: opens,
		RequireEncrypt: a.RequireEncrypt, EncryptKey: a.EncryptKey, MaxSessions: a.MaxSessions, BytesPerSecond: a.BytesPerSecond,
	}, ok
}
