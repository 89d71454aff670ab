// Package result has what a session reports: its events while it runs, and its summary.
package result

import (
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// EventKind says what an Event tells.
type EventKind uint8

// The kinds of events.
const (
	// EventConnected says that a connection stands. Link says over what.
	EventConnected EventKind = iota + 1
	// EventFile says that an entry has ended, with Outcome and, where it was not
	// copied, Text.
	EventFile
	// EventMemory says that an end has made its slots. Memory says where. Remote says
	// that the other end's are meant. Only ends that were asked for GPU memory tell it.
	EventMemory
	// EventWaiting says that the server has no room yet, for the reason in Text.
	EventWaiting
	// EventDeleted says that Path, a directory where Dir is set, is not at the source
	// and was deleted, or in a dry run would be. Where it was not deleted, Text says
	// why.
	EventDeleted
	// EventPlaced says, in Place, what the paths of entries stand for. The client of a
	// copy of files gets it before the events of entries. It does not come where the
	// destination could not say where it is.
	EventPlaced
	// EventRailLost says that Rail was lost in the middle of the copy, for the reason in
	// Text, and how many RailsLeft there are.
	EventRailLost
	// EventRailJoined says that a further Rail carries the copy, or one again that was
	// lost. RailsLeft counts all.
	EventRailJoined
	// EventRailUnused says why a Rail does not carry the copy.
	EventRailUnused
	// EventRing says how many Slots this end's ring has, and in Text why they are fewer than were
	// agreed.
	EventRing
	// EventWarning says in Text what the destination foresees, and goes on. Remote says that it
	// is the other end.
	EventWarning
	// EventAfresh says that a later attempt drops what the earlier ones have settled, because
	// the source or destination at this end, or with Remote at the other, is not known to be
	// that of the attempt before.
	EventAfresh
)

// Place says where the paths of a copy's entries begin.
type Place struct {
	// Name is the name of the one source at the destination. It is "." where the
	// source's contents go there. It is empty where there are several sources: the
	// paths then begin with their names.
	Name string
	// Single says that the source is a file or a link, and that the only entry has its
	// name.
	Single bool
	// Inside says that the destination is a directory, and that the copy gets its name
	// there.
	Inside bool
}

// End is one of the two ends of a session, as the reporting end sees them.
type End uint8

// The ends.
const (
	NoEnd End = iota
	ThisEnd
	OtherEnd
)

// Event is something that happened in a session.
type Event struct {
	Kind    EventKind
	Peer    string // at a server: the client's address
	Path    string
	Outcome wire.Outcome
	Bytes   int64
	Text    string // one line
	// Unchanged says of a copied file that it was there already, with the same content.
	Unchanged bool
	// Trusted says beside Unchanged that the basis manifest vouches for it: nobody read it.
	Trusted bool
	LeftOut bool // beside Kept: nothing is there
	End     End  // of EventFile: the end that Text is about
	Link    *Link
	Memory  *wire.Memory
	Place   *Place
	Remote  bool
	Slots   int // of EventRing
	Dir     bool
	DryRun  bool // nothing has happened: the event says what would
	// Rail and RailsLeft belong to the events of rails.
	Rail      string
	RailsLeft int
}

// Link says what carries a session.
type Link struct {
	Transport string // "verbs" or "tcp"
	Device    string
	Family    rdma.Transport
	Local     string
	Remote    string
	Imm       rdma.ImmKind
	QPs       int
	Slots     int
	// ChunkBytes is the size of a slot.
	ChunkBytes int
	// Encrypted says that chunks are encrypted.
	Encrypted bool
	// Why is why no better transport is used. It may be empty.
	Why string
}
