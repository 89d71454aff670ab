package door

import (
	"context"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
)

// Defaults of the bounds.
const (
	// DefaultMaxMemory bounds the rings and buffers of all sessions of a server.
	DefaultMaxMemory = 4 << 30
	// defaultMaxSessions is how many clients are served at once.
	defaultMaxSessions = 64
	// defaultMaxWait is how long a client waits for others to end.
	defaultMaxWait = 30 * time.Second
)

// Config is what a server's door has to know of the server behind it. The zero
// value of a bound means its default. The functions are called from several goroutines
// at once.
type Config struct {
	// Keys knows who may come.
	Keys doorKeyring
	// MaxSessions is how many sessions there are at once (64).
	MaxSessions int
	// MaxMemory bounds the rings and buffers of all sessions, in bytes
	// (DefaultMaxMemory). Where little is left a session gets fewer slots.
	MaxMemory int64
	// MaxWait is how long a client waits for others to end where it would exceed a
	// bound (30 s); then it is told to come again. Negative: at once.
	MaxWait time.Duration
	// NoRails is what a client is told where the server listens on no device; empty,
	// the error of the first that it could not listen on.
	NoRails string
	// Followed: somebody looks at Listening again and again, drops what failed and
	// listens anew. Then Serve goes on without a device, and logs of none that it
	// failed.
	Followed bool
	// Limit bounds what the payload of all sessions takes on the wire. Nil: nothing
	// does.
	Limit *limit.Limiter
	// Handshake is how long a client may take for each message.
	Handshake time.Duration
	// Wire is how this end's packets travel.
	Wire rdma.Wire
	// RingBytes is what a session of so many queue pairs and slots registers.
	RingBytes func(qps, slots, chunkBytes int) int64
	// Load is told what the running sessions need whenever that changes. It must not
	// block. Nil: nobody wants to know.
	Load func(Load)
	// Distances says of each device how far it is from the GPU that a client wishes
	// for, less being nearer; nil where that does not matter. It may block until ctx
	// ends. Nil: no GPU is lent.
	Distances func(ctx context.Context, w Wish, devices []Device) map[string]int
	// Begin makes a session's rail and its first queue pair of the request, which it
	// answers, and serves the session to its end. It calls Begun or Retry of the
	// session, once.
	Begin func(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane)
	// Log takes a line for each connection that came to no session. key is empty
	// where none was proven, and err is never nil.
	Log func(peer, key, what string, err error)
}

// Device is an RDMA device on which a server listens.
type Device struct {
	Name       string
	PCIAddress string
	RateGbps   float64 // of its fastest port; 0 where it is not known
}

// doorKeyring knows who may come. Its methods are called for every connection, by
// several goroutines at once, and must not block.
type doorKeyring interface {
	// Len is how many keys there are: one that is alone leaves nothing to others.
	Len() int
	// Find returns what the holder of the key of that name may have. The name is that
	// of a client that has proven nothing: it has the form of one (trust.CheckID), and
	// no more.
	Find(keyID string) (Admission, bool)
}

// Admission is what the holder of a key may have.
type Admission struct {
	Secret trust.Secret
	// Opens is what the key's sessions reach, which only the server behind the door
	// understands. It is compared with ==: the sessions of a key that opens something
	// else now are ended.
	Opens any
	// RequireEncrypt refuses sessions whose chunks are not encrypted.
	RequireEncrypt bool
	// MaxSessions is how many sessions the key may have at once; 0 for no bound of its
	// own.
	MaxSessions int
	// BytesPerSecond bounds what all of the key's sessions move together, both
	// directions counted; 0 for no bound.
	BytesPerSecond int64
}
