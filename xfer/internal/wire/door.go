package wire

// ProtocolVersion is the version of everything that two ends say to each other. Both
// ends must speak the same version.
const ProtocolVersion = 4

// The messages at a door, after the handshake, by their first byte. They are sealed.
// docs/design/protocol.md has their bodies. Package door has their codecs.
const (
	DoorProof  = 1 // client: its seal proves the key; says which GPU the client wants
	DoorWait   = 2 // server: why the client has to wait
	DoorRail   = 3 // server: an address at which the session can be reached
	DoorGrant  = 4 // server: what the session gets; the last message
	DoorRefuse = 5 // server: why the client gets no session; the last message
)
