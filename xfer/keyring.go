package xfer

import (
	"os"

	"gdrcp/internal/trust"
	"gdrcp/xfer/internal/door"
)

// Keyring knows who may come. Its methods are called for every connection, by
// several goroutines at once, and must not block.
type Keyring interface {
	// Len is how many keys there are: one that is alone leaves nothing to others.
	Len() int
	// Find returns what the holder of the key of that name may do. The name is
	// that of a client that has proven nothing: it has the form of one (trust.CheckID),
	// and no more.
	Find(keyID string) (Admission, bool)
}

// Root is a directory that is served. It can be compared with ==: as long as a key
// opens the same directory, that is the same Root.
type Root interface {
	// Open returns the directory for one session, which closes it. An
	// *fs.PathError has this host's path, of which a peer is told nothing.
	Open() (*os.Root, error)
}

// Admission is what the holder of a key may do.
type Admission struct {
	Secret trust.Secret
	// Root is the directory that is served. Nil: the user's own files, with the
	// rights of this process, and paths as they are given.
	Root     Root
	ReadOnly bool
	// RequireEncrypt refuses sessions whose chunks are not encrypted.
	RequireEncrypt bool
	// MaxSessions is how many sessions the key may have at once; 0 for no bound
	// of its own.
	MaxSessions int
	// BytesPerSecond bounds what all of the key's sessions move together, both
	// directions counted; 0 for no bound.
	BytesPerSecond int64
	// Only is the one copy that the holder may make. Nil: any number of any kind. Each Find must
	// return the same pointer: Recheck ends sessions of a key whose Only is another.
	Only *OneCopy
}

// OneKey is the keyring of one key.
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

// keyScope is what a key opens.
type keyScope struct {
	Root     Root
	ReadOnly bool
	Only     *OneCopy
}

// doorKeys is a keyring as the door sees it: the door decides who may come, and the
// session behind it to what.
type doorKeys struct{ keys Keyring }

func (k doorKeys) Len() int { return k.keys.Len() }

func (k doorKeys) Find(id string) (door.Admission, bool) {
	a, ok := k.keys.Find(id)
	return door.Admission{
		Secret: a.Secret, Opens: keyScope{a.Root, a.ReadOnly, a.Only},
		RequireEncrypt: a.RequireEncrypt, MaxSessions: a.MaxSessions, BytesPerSecond: a.BytesPerSecond,
	}, ok
}
