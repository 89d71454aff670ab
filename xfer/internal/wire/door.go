package wire

// ProtocolVersion is the version of everything that two gdrcp say to each
// other. Both ends must speak the same.
const ProtocolVersion = 2

// The messages at a door, after the handshake, by their first byte. They are
// sealed. docs/design/protocol.md has their bodies, and package door their codecs.
const (
	DoorProof  = 1 // client: that it is sealed proves the key; which GPU it wants there
	DoorWait   = 2 // server: why the client has to wait
	DoorRail   = 3 // server: an address at which the session can be reached
	DoorGrant  = 4 // server: what the session gets; the last message
	DoorRefuse = 5 // server: why not; the last message
)
