package result

import (
	"time"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// Summary is the result of a session.
type Summary struct {
	Link Link
	// Local and Remote are where the ends had their slots.
	Local, Remote wire.Memory
	// Content and Meta are the roots, the same at both ends: over the copied content, and over
	// modes and times. They are zero if a later attempt sent again what an earlier one had copied.
	Content, Meta [32]byte
	Hash          manifest.Algorithm
	PieceBytes    int64
	Files         int64
	Dirs          int64
	Links         int64
	// Unchanged counts the files that existed already with the same content, as a comparison
	// showed. Files does not count them. Bytes includes UnchangedBytes, their size, because they
	// are verified.
	Unchanged, UnchangedBytes int64
	Bytes                     int64
	// Trusted counts the files that existed already with the same content according to the basis
	// manifest: nobody read them. Files, Unchanged, Bytes and the numbers below do not include
	// them. TrustedBytes is their size.
	Trusted, TrustedBytes int64
	// SentBytes, SameBytes and ResumedBytes count the bytes that were sent, that a comparison found
	// the same at the destination, and that an earlier copy had left there, so that they were not
	// sent again. They add up to Bytes, except that Bytes also includes holes and the further names
	// of files (HardLinks). ComparedBytes is SameBytes and the bytes that were compared and differ.
	// SkippedBytes is the size of files that the destination kept and that nobody read: they are
	// not in Bytes.
	SentBytes, ComparedBytes, SameBytes, ResumedBytes, SkippedBytes int64
	// WireBytes is the size of the payload on the wire, if it was compressed.
	WireBytes int64
	Repairs   int64
	Seconds   float64
	// FirstByte is the time from the program's start to the first payload posted. It is 0 at a
	// sink.
	FirstByte time.Duration
	// Skipped, Failed, Changed and Corrupt count the entries that were not copied, by
	// reason.
	Skipped, Failed, Changed, Corrupt int64
	// Missing counts entries of a given manifest that are not at the source.
	Missing int64
	// Grown counts the files that grew while they were copied. They were copied up to their initial
	// size.
	Grown int64
	// Kept counts the entries for which the destination kept its own, as the options ask. LeftOut
	// counts those that the options do not permit to be made.
	Kept, LeftOut int64
	// Deleted counts the entries that were deleted, or in a dry run would be. NotDeleted says that
	// the sink deleted nothing, because the source could not be listed or read whole, or does not
	// match the given manifest. DeletedAtLeast says that there may be more: a connection was lost
	// while the sink might have been deleting.
	Deleted        int64
	NotDeleted     bool
	DeletedAtLeast bool
	// Unkept counts the attributes that copied entries lack, for each attribute and file system. It
	// may count an entry twice if several attempts made it.
	Unkept []fileset.Unkept
	// Retries is how often the copy began again because its connection was lost. The other numbers
	// are over all attempts.
	Retries int
	// DryRun says that nothing was copied or deleted. The counts say what would be.
	DryRun bool
	// Verified says that both ends have the same roots.
	Verified bool
	// Withheld says that a copy that must appear as a whole was not published: the copied entries
	// are next to the destination, and wait for another copy.
	Withheld bool
	// LocalCost is the cost of the copy at this end, for a client. RemoteCost is the cost at the
	// server. It is nil if nobody reports that for the whole copy: the server does not know how to,
	// or there were several attempts.
	LocalCost  wire.Cost
	RemoteCost *wire.Cost
	// OneProcess says that both ends were in this process. LocalCost then has the processor time of
	// both, and RemoteCost has none.
	OneProcess bool
	// Rails is the copy's use of each rail, in the order in which they joined.
	Rails []RailUse
	// NUMANodes are the nodes of this machine that held this end's slots: those of the rails'
	// devices. It is empty if that does not matter or is not known.
	NUMANodes []int
	// Read is how the source read files in the last attempt, and Written how the sink wrote them,
	// as far as they reported it.
	Read, Written wire.DiskIO
}

// RailUse is a copy's use of one rail.
type RailUse struct {
	// Rail is the local device or, over TCP, the peer's address.
	Rail string `json:"rail"`
	// Transport is "verbs" or "tcp".
	Transport string `json:"transport"`
	// Bytes is the payload that this end sent or received over the rail, as stored on the wire.
	Bytes int64 `json:"bytes"`
	// Faults is how often the rail was lost, and LastFault why it was lost last.
	Faults    int    `json:"faults"`
	LastFault string `json:"last_fault,omitempty"`
	// DownSeconds is how long the copy ran without the rail.
	DownSeconds float64 `json:"down_seconds"`
	// Relaxed says that the rail's device was asked to use relaxed ordering to write to this end's
	// slots and to read from them.
	Relaxed bool `json:"relaxed_ordering,omitempty"`
}
