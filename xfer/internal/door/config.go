package door

import (
	"context"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/limit"
	"gdrcp/xfer/internal/wire"
)

// Default values of the bounds.
const (
	// DefaultMaxMemory bounds the rings and buffers of all sessions of a server.
	DefaultMaxMemory = 4 << 30
	// DefaultMaxSessions is the maximum number of concurrent sessions.
	DefaultMaxSessions = 64
	// defaultMaxWait is how long a client waits for other sessions to end.
	defaultMaxWait = 30 * time.Second
)

// Config configures a server's door. The zero value of a bound means its
// default. The functions must be safe for concurrent use.
type Config struct {
	// Keys determines which clients are admitted.
	Keys doorKeyring
	// MaxSessions is the maximum number of concurrent sessions (64).
	MaxSessions int
	// MaxMemory bounds the rings and buffers of all sessions, in bytes
	// (DefaultMaxMemory). If little is left, a session gets fewer slots.
	MaxMemory int64
	// Files is the limit of the process's open files. 0 means that there is no
	// limit.
	Files int
	// MaxWait is how long a client that would exceed a bound waits for other
	// sessions to end (30 s). Then the server refuses it and asks it to retry
	// later. With a negative value the server does so immediately.
	MaxWait time.Duration
	// NoRails is the reason sent to clients if the server listens on no device.
	// If NoRails is empty, it is the error of the first device that the server
	// could not listen on.
	NoRails string
	// Followed means that the owner of the door polls Listening, drops failed
	// devices and listens again. Then Serve continues without a device, and
	// does not log that a device failed.
	Followed bool
	// Limit limits the payload of all sessions on the wire. Nil: no limit.
	Limit *limit.Limiter
	// Handshake is the timeout of a client for each message.
	Handshake time.Duration
	// Wire configures this end's packets.
	Wire rdma.Wire
	// RingBytes returns how many bytes a session with these numbers of queue
	// pairs and slots registers.
	RingBytes func(qps, slots, chunkBytes int) int64
	// Load is called with the load of the running sessions whenever it changes.
	// It must not block. It may be nil.
	Load func(Load)
	// Distances returns the distance of each device from the GPU that a client
	// requests; less is nearer. It returns nil if the distance does not matter.
	// It may block until ctx ends. Distances is nil if the server offers no
	// GPU.
	Distances func(ctx context.Context, w wire.DoorWish, devices []Device) map[string]int
	// Begin makes a session's rail, answers the request to make its first queue
	// pair, and serves the session to its end. It calls Begun or Retry of the
	// session, once. The function that it returns is called when the session
	// has released its place, and may block.
	Begin func(p rdma.Provider, req rdma.Request, s *Session, l trust.Lane) (tell func())
	// Log is called for each connection that did not become a session. key is
	// empty if the client has not proved one. err is never nil.
	Log func(peer, key, what string, err error)
}

// Device is an RDMA device on which a server listens.
type Device struct {
	Name       string
	PCIAddress string
	RateGbps   float64 // of its fastest port; 0 if unknown
	Transport  rdma.Transport
	NUMANode   int // -1 if the kernel reports no node
}

// DeviceOf returns the properties of a device that a door needs.
func DeviceOf(d rdma.Device) Device {
	return Device{d.Name, d.PCIAddress, d.RateGbps(), d.Transport, d.NUMANode}
}

// doorKeyring determines which clients are admitted. Its methods are called
// concurrently, for every connection, and must not block.
type doorKeyring interface {
	// Len is the number of keys. If there is only one key, it need not leave
	// room for others.
	Len() int
	// Find returns the permissions of the holder of the named key. The name was
	// sent by an unauthenticated client; only its form has been checked
	// (trust.CheckID).
	Find(keyID string) (Admission, bool)
}

// Admission has the permissions of the holder of a key.
type Admission struct {
	Secret trust.Secret
	// Opens is what the key's sessions may access. Only the server that uses
	// the door interprets it. The door compares it with ==, and ends the
	// sessions of a key whose Opens has changed.
	Opens any
	// RequireEncrypt refuses sessions whose chunks are not encrypted.
	// EncryptKey means that this is required by the key, not by the server.
	RequireEncrypt, EncryptKey bool
	// MaxSessions is the maximum number of concurrent sessions of the key. 0
	// means that the key has no limit of its own.
	MaxSessions int
	// BytesPerSecond limits the total rate of the key's sessions, counting both
	// directions. 0 means no limit.
	BytesPerSecond int64
}
