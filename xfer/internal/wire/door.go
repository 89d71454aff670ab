package wire

// ProtocolVersion is the version of the whole protocol. Both ends must use the same
// version.
const ProtocolVersion = 4

// The messages at a door, after the handshake, by their first byte. They are sealed.
// docs/design/protocol.md documents their bodies. Package door has their codecs.
const (
	DoorProof  = 1 // client: its seal proves the key; names the GPU that the client wants
	DoorWait   = 2 // server: the reason why the client has to wait
	DoorRail   = 3 // server: an address for the session
	DoorGrant  = 4 // server: the grant of the session; the last message
	DoorRefuse = 5 // server: the reason why the client gets no session; the last message
)
