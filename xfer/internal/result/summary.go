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
	// Content and Meta are the roots, the same at both ends: over what was copied, and
	// over modes and times. They are zero if a later attempt sent again what an earlier one
	// had copied.
	Content, Meta [32]byte
	Hash          manifest.Algorithm
	PieceBytes    int64
	Files         int64
	Dirs          int64
	Links         int64
	// Unchanged counts the files that were there already with the same content, which was
	// compared. Files does not count them. Bytes has UnchangedBytes, which are theirs, for
	// they are verified.
	Unchanged, UnchangedBytes int64
	Bytes                     int64
	// Trusted counts the files that were there already with the same content as the basis
	// manifest has it: nobody read them. Neither Files, Unchanged nor Bytes has them, nor
	// the numbers below. TrustedBytes are theirs.
	Trusted, TrustedBytes int64
	// SentBytes, SameBytes and ResumedBytes add up to Bytes, but for holes and the further names
	// of files (HardLinks), of which Bytes has each: what was sent,
	// what was compared and is the same at the destination, and what an earlier copy had
	// brought, so that it was not sent again. ComparedBytes is SameBytes and what was
	// compared and differs. SkippedBytes are of files that the destination kept, which
	// nobody read: they are not in Bytes.
	SentBytes, ComparedBytes, SameBytes, ResumedBytes, SkippedBytes int64
	// WireBytes is how many bytes the payload took on the wire, where it was
	// compressed.
	WireBytes int64
	Repairs   int64
	Seconds   float64
	// FirstByte is the time from the program's start to the first payload posted. It is
	// 0 at a sink.
	FirstByte time.Duration
	// Skipped, Failed, Changed and Corrupt count the entries that were not copied, by
	// reason.
	Skipped, Failed, Changed, Corrupt int64
	// Missing counts entries of a given manifest that are not at the source.
	Missing int64
	// Grown counts the files that grew while they were copied. They were copied up to
	// the size that they had at first.
	Grown int64
	// Kept counts the entries in whose place the destination kept what it had, as the
	// options want, LeftOut those that they do not let be made.
	Kept, LeftOut int64
	// Deleted counts the entries that were deleted, or in a dry run would be.
	// NotDeleted says that the sink deleted nothing, because the source could not be
	// listed or read whole, or does not match the given manifest.
	// DeletedAtLeast says that there may be more: a connection was lost at a time when the
	// sink could be deleting.
	Deleted        int64
	NotDeleted     bool
	DeletedAtLeast bool
	// Unkept is what entries that were copied lack of their attributes, for each attribute
	// and file system. Of entries that several attempts have made it may count each.
	Unkept []fileset.Unkept
	// Retries is how often the copy began again because its connection was lost. The
	// other numbers are of all tries.
	Retries int
	// DryRun says that nothing was copied or deleted. The counts tell what would be.
	DryRun bool
	// Verified says that both ends have the same roots.
	Verified bool
	// Withheld says that a copy that was to appear whole has not: what was copied lies
	// beside the destination, and waits for another copy.
	Withheld bool
	// LocalCost is what the copy cost this end, of a client. RemoteCost is what it cost
	// the server, or nil where nobody tells that of the whole copy: the server does not
	// know how, or the copy had several tries.
	LocalCost  wire.Cost
	RemoteCost *wire.Cost
	// OneProcess says that both ends were in this process, whose processor time LocalCost
	// has. RemoteCost has none.
	OneProcess bool
	// Rails is what the copy had of each rail, in the order in which they joined.
	Rails []RailUse
	// NUMANodes are the nodes of this machine that this end's slots were on, those of the
	// rails' devices. There are none where that does not matter or is not known.
	NUMANodes []int
	// Read is how the source read files in the last try, and Written how the sink wrote
	// them, as far as they told.
	Read, Written wire.DiskIO
}

// RailUse is what a copy had of one rail.
type RailUse struct {
	// Rail is the device here or, over TCP, the peer's address.
	Rail string `json:"rail"`
	// Transport is "verbs" or "tcp".
	Transport string `json:"transport"`
	// Bytes is the payload that this end sent or took over the rail, as stored on the
	// wire.
	Bytes int64 `json:"bytes"`
	// Faults is how often the rail was lost, and LastFault why it was lost last.
	Faults    int    `json:"faults"`
	LastFault string `json:"last_fault,omitempty"`
	// DownSeconds is for how long the copy went on without the rail.
	DownSeconds float64 `json:"down_seconds"`
	// Relaxed says that the rail's device was asked to write to this end's slots, and to
	// read from them, with relaxed ordering.
	Relaxed bool `json:"relaxed_ordering,omitempty"`
}
