package xfer

import (
	"slices"
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// The bounds and defaults of what a user can choose. They hold at both ends.
const (
	DefaultChunkBytes = 1 << 20
	DefaultSlots      = 16
	MinChunkBytes     = wire.MinChunkBytes // a chunk of a copy holds at least one piece
	MaxChunkBytes     = wire.MaxChunkBytes
	MaxSlots          = wire.MaxSlots
	MaxQPs            = wire.MaxQPs
	// MaxCompressedChunkBytes bounds chunks that are compressed. Each worker needs as
	// much memory again to unpack them.
	MaxCompressedChunkBytes = wire.MaxCompressedChunkBytes
	// MaxGPUs bounds the index of a GPU, also one that a peer names.
	MaxGPUs = wire.MaxGPUs
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = wire.MaxRingBytes
	// DefaultPort is where serve listens by TCP. rdma_cm uses the next port.
	DefaultPort = 7473
)

// Options say how to make a copy. The zero value of a field means its default.
type Options struct {
	Recursive bool
	Follow    bool // -L
	// OneFileSystem copies a directory on which another file system is mounted, below a
	// source, as an empty directory.
	OneFileSystem bool
	// Names lists what is copied of the one source's contents. Nil means everything.
	Names *chunker.List
	// Unfit says why a Push of several sources must not copy one of them, a file or
	// link. That source fails, and the others are copied. A nil Unfit refuses none.
	Unfit func(source string) error
	// Rules say what the copy leaves out. The first rule that matches counts.
	Rules   []filter.Rule
	NoFsync bool
	// IO is the rung by which the sink writes files, and the source reads them (see
	// chunker.Tree.ReadBy). Any but chunker.RungAuto is forced at the sink: a copy to a
	// file system that does not have it is an ErrUnsupported.
	IO chunker.Rung
	// Transfers is how many large files are under way at once, up to MaxTransfers. 0 stands
	// for DefaultTransfers. A copy that writes a manifest has one.
	Transfers int
	// NoResume begins every file anew, and keeps nothing of a file that was not completed.
	// Recheck reads back everything that an earlier copy brought of a file before that
	// counts. A copy that writes a manifest begins every file anew.
	NoResume, Recheck bool
	// PartialDir says where the destination keeps partial files: in one directory, if it
	// is an absolute path, or in a directory of that name beside each target. Entries with
	// that name are left out, and not deleted. Empty: beside the targets.
	PartialDir string
	// VerifyWritten reads every file back from the disk, and checks it, before it gets its
	// name.
	VerifyWritten bool
	// CopyGrowing copies files that grow while they are read, up to the size that they
	// had when they were found. It has no effect on a copy that must meet a Manifest.
	CopyGrowing bool

	// These say what the copy keeps of the source, with the meanings that rsync gives:
	// links as links, which are otherwise left out; permission bits; times of change;
	// owner and group by name, or with NumericIDs by number; which names are of the
	// same file; extended attributes.
	// ACLs are POSIX ACLs, and imply Perms.
	Links, Perms, Times, Owner, Group, NumericIDs, HardLinks, Xattrs, ACLs bool
	// RequireAttributes fails an entry that lacks such an attribute: the summary has them else.
	RequireAttributes bool
	// Privileged lets a Pull keep set-ID bits of files, and xattrs outside the user namespace.
	Privileged bool

	// These say what the destination decides, with the meanings that rsync gives.
	DryRun         bool
	IgnoreExisting bool // files that exist there are kept, but not directories
	Existing       bool // entries that do not exist there are not made
	Update         bool // -u: files that are newer there are kept
	// With Times, the destination keeps files of the same size and time, unless
	// IgnoreTimes or a manifest wants them copied. With SizeOnly it keeps all files of
	// the same size.
	IgnoreTimes, SizeOnly bool
	// Whole makes the copy of one directory appear at the destination in one step, or not
	// at all. The destination is the copy itself.
	Whole bool
	// ForceReplace, with Whole, replaces a directory that is there whatever it holds. Without
	// it the directory must be one that Whole made, or hold nothing at its top that the source
	// does not have.
	ForceReplace bool
	// Checksum compares files of the same size by the digests of their pieces, and sends
	// only what differs.
	Checksum bool
	// BasisManifest, with Checksum and in a Pull, is a manifest with identities of what is at
	// the destination. Files that are as it says are not read there.
	BasisManifest string
	// AppendVerify takes a file that is shorter at the destination for the beginning of the
	// source's: it is compared as with Checksum, and the rest is sent. Files that are not
	// shorter there are kept.
	AppendVerify bool
	// InPlace writes into the files that exist at the destination. A file that was not
	// completed is then partly old and partly new.
	InPlace bool
	// NoSpaceCheck begins whatever room there seems to be at the destination.
	NoSpaceCheck   bool
	Delete         bool // entries that the source does not have are deleted at the end
	DeleteExcluded bool // Delete, also of entries that rules exclude
	// MinFileBytes and MaxFileBytes bound the size of files: smaller and larger files
	// are not transferred. MaxFileBytes is 0 for any size, and negative for empty files
	// only.
	MinFileBytes, MaxFileBytes int64
	// MaxDelete is how many files and directories are deleted at most. 0 means any
	// number, and a negative value none.
	MaxDelete int64

	Transport  string // "auto", "verbs" or "tcp"
	Require    string // "", "verbs" or "gpudirect"
	Rail       string // device name or address of the local rail, of the first one
	RemoteRail string // of the server's rail
	trace      trace
	probe      heldProbe

	// Rails is how many rails carry a copy at most: AllRails for every one that reaches
	// the server. 0 is AllRails over RDMA devices, and 1 over TCP. MoreRails names the
	// local ones beside Rail, where that names one.
	Rails     int
	MoreRails []string
	// QPs and Slots are, with 0, as many as the rate of the RDMA devices here asks for, and
	// slots for the workers that wait for disks: 1 and DefaultSlots where the rate is not
	// known, or without RDMA. To a server far away they are as many as the path keeps under
	// way.
	QPs        int
	ChunkBytes int
	Slots      int
	// MostSlots bounds Slots where those follow the rate. 0 is MaxSlots.
	MostSlots int
	Hash      manifest.Algorithm
	Compress  Compress
	// GPU and RemoteGPU say where each end has its slots: "" or "off" for host memory,
	// "auto", or what gpu.Find takes.
	GPU, RemoteGPU string
	// GPUFlush is "" or "auto", or "always".
	GPUFlush string
	// BytesPerSecond bounds the payload on the wire. 0 means no bound.
	BytesPerSecond int64
	// Stall is the time without progress after which a copy ends with ErrStalled. 0
	// means never.
	Stall time.Duration
	// Encrypt seals headers and payloads of chunks. Messages are always sealed.
	Encrypt bool
	// ForceImmSend makes immediates travel as Write + Send everywhere.
	ForceImmSend bool
	// Wire is how this end's packets travel.
	Wire rdma.Wire

	// Manifest is the name of a manifest that the copy must meet. WriteManifest is the
	// name of one to write.
	Manifest      string
	WriteManifest string

	// Tries are the tries of this copy, for a caller that makes several. Nil: there is one.
	Tries *Tries

	// Started is when the program began. The time to the first byte counts from there.
	Started  time.Time
	Timeouts Timeouts
	// Report takes the events. Several goroutines call it at once. It may be nil.
	Report func(Event)
	// Tally counts while the copy runs. It may be nil.
	Tally *Tally

	follows      linkSizes
	grows        int // how many slots rings may grow to, or 0: see grownSlots
	wantManifest *manifest.Reader
	// local and remote are where this end's slots and the server's are to be, from GPU
	// and its like.
	local, remote ring.Placement
	store         *chunker.Sink // the store of a pull
}

func (o *Options) report(e Event) {
	if o.Report != nil {
		e.Text = oneLine(e.Text)
		o.Report(e)
	}
}

// complete fills in defaults.
func (o *Options) complete() {
	if o.Transport == "" {
		o.Transport = "auto"
	}
	if o.QPs == 0 {
		o.QPs = 1
	}
	if o.ChunkBytes == 0 {
		o.ChunkBytes = DefaultChunkBytes
	}
	if o.Slots == 0 {
		o.Slots = DefaultSlots
	}
	if o.Timeouts == (Timeouts{}) {
		o.Timeouts = DefaultTimeouts()
	}
	if o.Tally == nil {
		o.Tally = &Tally{}
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	o.Tally.Start(o.Started)
}

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
	// EventRing says how many Slots an end's ring has now, because its workers wait for disks,
	// or in Text why it stays as it is, or with Shrunk why it has fewer than were agreed. Remote
	// says that the other end's is meant.
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
	Outcome Outcome
	Bytes   int64
	Text    string // one line
	// Unchanged says of a copied file that it was there already, with the same content.
	Unchanged bool
	// Trusted says beside Unchanged that the basis manifest vouches for it: nobody read it.
	Trusted        bool
	LeftOut        bool // beside Kept: nothing is there
	End            End  // of EventFile: the end that Text is about
	Link           *Link
	Memory         *Memory
	Place          *Place
	Remote, Shrunk bool
	Slots          int // of EventRing
	Dir            bool
	DryRun         bool // nothing has happened: the event says what would
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

// Tally counts what a session has done so far. It may be read while the session runs.
type Tally = stat.Counters

// Progress is a reading of a Tally.
type Progress = stat.Progress

// Summary is the result of a session.
type Summary struct {
	Link Link
	// Local and Remote are where the ends had their slots.
	Local, Remote Memory
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
	Unkept []Unkept
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
	LocalCost  Cost
	RemoteCost *Cost
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
	Read, Written DiskIO
}

func (a *copyResults) summary(t *Tally, p *wire.Terms, link Link, since time.Time) *Summary {
	r, counted := a.finish(), t.Snapshot()
	a.mu.Lock()
	defer a.mu.Unlock()
	r, since = a.tries.total(r), a.tries.since(since)
	of := func(o Outcome) int64 { return a.booked.counts[o] + a.refused.counts[o] + a.late[o] }
	sum := &Summary{
		Link: link, Local: wire.HostMemory(""), Remote: wire.HostMemory(""), Content: r.Content, Meta: r.Meta, Hash: p.Hash, PieceBytes: p.PieceBytes,
		Files: a.booked.counts[Copied], Dirs: a.booked.dirs, Links: a.booked.links, Bytes: int64(r.Bytes) - a.booked.trustedBytes, WireBytes: counted.WireBytes, Repairs: counted.Repairs,
		Unchanged: a.booked.unchanged, UnchangedBytes: a.booked.unchangedBytes, ResumedBytes: a.booked.resumedBytes, ComparedBytes: a.booked.compared.digestBytes,
		Trusted: a.booked.trusted, TrustedBytes: a.booked.trustedBytes,
		SkippedBytes: a.booked.skippedBytes, SameBytes: a.booked.compared.sameBytes(), SentBytes: a.booked.sentBytes,
		Seconds: time.Since(since).Seconds(), FirstByte: counted.FirstByte,
		Skipped: of(Skipped), Failed: of(Failed), Changed: of(Changed), Corrupt: of(Corrupt),
		Missing: a.refused.missing, Verified: a.verified, Retries: a.tries.retries(),
		Grown: a.booked.grown, Kept: of(Kept) - a.booked.leftOut, LeftOut: a.booked.leftOut, Deleted: a.deletes.deleted, DeletedAtLeast: a.deletes.uncounted, NotDeleted: a.deletes.notDeleted, DryRun: a.dry, Withheld: a.withheld,
		Read: a.read, Written: a.written, Unkept: slices.Clone(a.unkept),
	}
	if a.dry {
		sum.Bytes, sum.SentBytes, sum.SameBytes, sum.ComparedBytes = a.booked.dryBytes, 0, 0, 0
	}
	return sum
}
