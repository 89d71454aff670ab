// Package result defines what a session reports: its events while it runs, and its summary.
package result

import (
	"gdrcp/rdma"
	"gdrcp/xfer/internal/wire"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of events.
const (
	// EventConnected says that a connection is established. Link describes it.
	EventConnected EventKind = iota + 1
	// EventFile says that an entry is finished, with its Outcome and, if it was not copied, the
	// reason in Text.
	EventFile
	// EventMemory says that an end has made its slots, and Memory where they are. Remote means the
	// peer's slots. Only ends that were asked for GPU memory report it.
	EventMemory
	// EventWaiting says that the server has no room yet, for the reason in Text.
	EventWaiting
	// EventDeleted says that Path, a directory if Dir is set, is not at the source and was deleted,
	// or in a dry run would be. If it was not deleted, Text says why.
	EventDeleted
	// EventPlaced says, in Place, what the paths of entries are relative to. The client of a copy
	// of files gets it before the events of entries. It is omitted if the destination could not
	// report its place.
	EventPlaced
	// EventRailLost says that Rail was lost during the copy, for the reason in Text. RailsLeft
	// counts the others.
	EventRailLost
	// EventRailJoined says that a further Rail carries the copy, or that a lost one does so again.
	// RailsLeft counts all.
	EventRailJoined
	// EventRailUnused says why a Rail does not carry the copy.
	EventRailUnused
	// EventRing says how many Slots this end's ring has, and in Text why they are fewer than were
	// agreed.
	EventRing
	// EventWarning is a warning of the destination in Text; the copy continues. Remote says that
	// the warning is the peer's.
	EventWarning
	// EventAfresh says that a later attempt discards what the earlier ones have settled, because
	// the source or destination may not be that of the attempt before. Remote says that this is
	// about the peer's.
	EventAfresh
)

// Place says what the paths of a copy's entries are relative to.
type Place struct {
	// Name is the name of the only source at the destination. It is "." if the source's contents go
	// there. It is empty if there are several sources: the paths then begin with their names.
	Name string
	// Single says that the source is a file or a link, and that the only entry has its
	// name.
	Single bool
	// Inside says that the destination is a directory, and that the copy gets its name in it.
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
	// Unchanged says that a copied file existed already with the same content.
	Unchanged bool
	// Trusted, with Unchanged, says that the basis manifest vouches for the file: nobody read it.
	Trusted bool
	LeftOut bool // with Kept: nothing exists there
	End     End  // of EventFile: the end that Text is about
	Link    *Link
	Memory  *wire.Memory
	Place   *Place
	Remote  bool
	Slots   int // of EventRing
	Dir     bool
	DryRun  bool // nothing was changed: the event says what would happen
	// Rail and RailsLeft belong to the events of rails.
	Rail      string
	RailsLeft int
}

// Link describes what carries a session.
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
	// Why is the reason why no better transport is used. It may be empty.
	Why string
}
