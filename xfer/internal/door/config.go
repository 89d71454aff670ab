package door

import (
	"context"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/wire"
)

// The defaults of the bounds.
const (
	// DefaultMaxMemory bounds the rings and buffers of all sessions of a server.
	DefaultMaxMemory = 4 << 30
	// DefaultMaxSessions is how many clients are served at once.
	DefaultMaxSessions = 64
	// defaultMaxWait is how long a client waits for others to end.
	defaultMaxWait = 30 * time.Second
)

// Config is what a server's door has to know of the server behind it. The zero value of
// a bound means its default. Several goroutines call the functions at once.
type Config struct {
	// Keys knows which clients may come.
	Keys doorKeyring
	// MaxSessions is how many sessions run at once (64).
	MaxSessions int
	// MaxMemory bounds the rings and buffers of all sessions, in bytes
	// (DefaultMaxMemory). Where little is left, a session gets fewer slots.
	MaxMemory int64
	// Files is how many files the process may have open. 0 means that nothing bounds them.
	Files int
	// MaxWait is how long a client that would exceed a bound waits for others to end
	// (30 s). The server then tells it to come again. With a negative value the server
	// tells it at once.
	MaxWait time.Duration
	// NoRails is what a client is told where the server listens on no device. Where
	// NoRails is empty, the client is told the error of the first device that the
	// server could not listen on.
	NoRails string
	// Followed says that the owner of the door looks at Listening again and again,
	// drops failed devices and listens anew. Serve then goes on without a device, and
	// does not log that a device failed.
	Followed bool
	// Limit bounds the payload of all sessions on the wire. Nil: no bound.
	Limit *limit.Limiter
	// Handshake is how long a client may take for each message.
	Handshake time.Duration
	// Wire is how this end's packets travel.
	Wire rdma.Wire
	// RingBytes is how many bytes a session of so many queue pairs and slots registers.
	RingBytes func(qps, slots, chunkBytes int) int64
	// Load is told what the running sessions need, whenever that changes. It must not
	// block. It may be nil.
	Load func(Load)
	// Distances says how far each device is from the GPU that a client wishes for; less
	// is nearer. It returns nil where the distance does not matter. It may block until
	// ctx ends. Distances is nil where the server lends no GPU.
	Distances func(ctx context.Context, w wire.DoorWish, devices []Device) map[string]int
	// Begin makes a session's rail, makes its first queue pair of the request, which it
	// answers, and serves the session to its end. It calls Begun or Retry of the
	// session, once. What it returns is called when the session has given its place back,
	// and may block.
	Begin func(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane) (tell func())
	// Log takes a line for each connection that came to no session. key is empty where
	// the client proved none. err is never nil.
	Log func(peer, key, what string, err error)
}

// Device is an RDMA device on which a server listens.
type Device struct {
	Name       string
	PCIAddress string
	RateGbps   float64 // of its fastest port; 0 where it is not known
	Transport  rdma.Transport
	NUMANode   int // -1 if the kernel names no node
}

// DeviceOf is what of a device matters to a door.
func DeviceOf(d rdma.Device) Device {
	return Device{d.Name, d.PCIAddress, d.RateGbps(), d.Transport, d.NUMANode}
}

// doorKeyring knows which clients may come. Several goroutines at once call its
// methods, for every connection. The methods must not block.
type doorKeyring interface {
	// Len is how many keys exist. A key that is alone need not leave anything to
	// others.
	Len() int
	// Find returns what the holder of the key of that name may have. A client that has
	// proven nothing sent the name. The name only has the form of one (trust.CheckID).
	Find(keyID string) (Admission, bool)
}

// Admission is what the holder of a key may have.
type Admission struct {
	Secret trust.Secret
	// Opens is what the key's sessions reach. Only the server behind the door
	// understands it. The door compares it with ==, and ends the sessions of a key that
	// now opens something else.
	Opens any
	// RequireEncrypt refuses sessions whose chunks are not encrypted. EncryptKey says that
	// it is of this key, and not of the server.
	RequireEncrypt, EncryptKey bool
	// MaxSessions is how many sessions the key may have at once. 0 means that the key
	// has no bound of its own.
	MaxSessions int
	// BytesPerSecond bounds what all of the key's sessions move together, both
	// directions counted. 0 means no bound.
	BytesPerSecond int64
}
