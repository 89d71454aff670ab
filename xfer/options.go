package xfer

import (
	"time"

	"gdrcp/chunker"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Bounds and defaults of what can be chosen. They hold at both ends.
const (
	DefaultChunkBytes = 1 << 20
	DefaultSlots      = 16
	MinChunkBytes     = wire.MinChunkBytes // a copy's chunks hold a piece at the least
	MaxChunkBytes     = wire.MaxChunkBytes
	MaxSlots          = wire.MaxSlots
	MaxQPs            = wire.MaxQPs
	// MaxCompressedChunkBytes bounds chunks that are compressed: each worker
	// needs as much again to unpack them.
	MaxCompressedChunkBytes = wire.MaxCompressedChunkBytes
	// MaxGPUs bounds the index of a GPU, also one that a peer names.
	MaxGPUs = wire.MaxGPUs
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = wire.MaxRingBytes
	// DefaultPort is where serve listens by TCP; rdma_cm uses the next one.
	DefaultPort = 7473
)

// Options say how a copy is made. The zero value of a field means its default.
type Options struct {
	Recursive bool
	Follow    bool // -L
	// OneFileSystem: what is mounted below a source is made as an empty directory.
	OneFileSystem bool
	// Names are what alone is copied of the one source's contents. Nil: everything.
	Names *chunker.List
	// Unfit says of one of several sources of a Push, a file or link, why it is not to
	// be copied: it fails, and the others are copied. Nil: nothing is wrong with any.
	Unfit func(source string) error
	// Rules say what is left out of the copy; the first that matches counts.
	Rules   []filter.Rule
	NoFsync bool
	// CopyGrowing copies files that grow while they are read, up to the size that
	// they had when they were found. Not those that a Manifest is to be met by.
	CopyGrowing bool

	// What is kept of the source, with rsync's meanings: links as links, else
	// they are left out; permission bits; times of change; owner and group by
	// name, or with NumericIDs by number; which names are of the same file;
	// extended attributes.
	Links, Perms, Times, Owner, Group, NumericIDs, HardLinks, Xattrs bool

	// What the destination decides, with rsync's meanings.
	DryRun         bool
	IgnoreExisting bool // what is there is kept, but directories
	Existing       bool // what is not there is not made
	Update         bool // -u: files that are newer there are kept
	// With Times, files of the same size and time there are kept, unless IgnoreTimes
	// or a manifest wants them copied; with SizeOnly all of the same size are.
	IgnoreTimes, SizeOnly bool
	Delete                bool // what the source has not is deleted at the end
	DeleteExcluded        bool // Delete, also of what rules exclude
	// Files of fewer bytes than MinFileBytes, or of more than MaxFileBytes, are not
	// transferred. MaxFileBytes is 0 for any number, negative for empty files alone.
	MinFileBytes, MaxFileBytes int64
	// MaxDelete is how many files and directories are deleted at the most; 0 for
	// any number, negative for none.
	MaxDelete int64

	Transport  string // "auto", "verbs" or "tcp"
	Require    string // "", "verbs" or "gpudirect"
	Rail       string // device name or address of the local rail
	RemoteRail string // of the server's
	QPs        int
	ChunkBytes int
	Slots      int
	Hash       manifest.Algorithm
	Compress   Compress
	// GPU and RemoteGPU are where each end's slots live: "" or "off" for host
	// memory, "auto", or what gpu.Find takes.
	GPU, RemoteGPU string
	// GPUFlush is "" or "auto", or "always".
	GPUFlush string
	// BytesPerSecond bounds what the payload takes on the wire; 0: nothing does.
	BytesPerSecond int64
	// Stall is after how long without progress a copy ends with ErrStalled; 0:
	// never.
	Stall time.Duration
	// Encrypt seals headers and payloads of chunks, besides the messages, which
	// always are.
	Encrypt bool
	// ForceImmSend makes immediates travel as Write + Send everywhere.
	ForceImmSend bool
	// Wire is how this end's packets travel.
	Wire rdma.Wire

	// Manifest is the name of a manifest that the copy must meet, and
	// WriteManifest that of one to write.
	Manifest      string
	WriteManifest string

	// Started is when the program began, for the time to the first byte.
	Started  time.Time
	Timeouts Timeouts
	// Report takes what happens, from several goroutines at once. Nil: nobody
	// wants to know.
	Report func(Event)
	// Tally counts while the copy runs. Nil: nobody looks.
	Tally *Tally

	wantManifest *manifest.Reader
	// Of this end's slots and the server's, from GPU and its like.
	local, remote ring.Placement
	store         *chunker.Sink // of a pull
}

func (o *Options) report(e Event) {
	if o.Report != nil {
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

// The events.
const (
	// EventConnected: a connection stands. Link says over what.
	EventConnected EventKind = iota + 1
	// EventFile: an entry has ended, with Outcome and, where it was not
	// copied, Text.
	EventFile
	// EventMemory: an end has made its slots. Memory says where, and Remote
	// whose they are. Told of ends that were asked for GPU memory.
	EventMemory
	// EventWaiting: the server has no room yet, for the reason in Text.
	EventWaiting
	// EventDeleted: Path, a directory where Dir is set, is not at the source
	// and was deleted, or in a dry run would be. Text says why it was not.
	EventDeleted
	// EventPlaced: it is known what the paths of entries stand for. Place says it. It
	// comes before the events of entries, at the client of a copy of files; not where
	// the destination could not say where it is.
	EventPlaced
)

// Place says what the paths of a copy's entries are below.
type Place struct {
	// Name is that of the one source at the destination; "." where what is in it goes
	// there. Empty: there are several, whose names the paths begin with.
	Name string
	// Single: the source is a file or a link, and the one entry bears its name.
	Single bool
	// Inside: the destination is a directory, and the copy gets its name there.
	Inside bool
}

// End is one of the two ends of a session, as the one that speaks sees them.
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
	Text    string
	End     End // of EventFile: which of the two Text is of
	Link    *Link
	Memory  *Memory
	Place   *Place
	Remote  bool
	Dir     bool
	DryRun  bool // nothing has happened: it would
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
	// Encrypted: chunks are.
	Encrypted bool
	// Why is why no better transport is used, or empty.
	Why string
}

// Tally counts what a session has done so far. It may be read while it runs.
type Tally = stat.Counters

// Progress is a reading of a Tally.
type Progress = stat.Progress

// Summary is what a session came to.
type Summary struct {
	Link Link
	// Local and Remote are where the ends had their slots.
	Local, Remote Memory
	// Content and Meta are the roots, the same at both ends: over what was
	// copied, and over modes and times.
	Content, Meta [32]byte
	Hash          manifest.Algorithm
	PieceBytes    int64
	Files         int64
	Dirs          int64
	Links         int64
	Bytes         int64
	// WireBytes is what the payload took on the wire, where it was compressed.
	WireBytes int64
	Repairs   int64
	Seconds   float64
	// FirstByte is from the program's start to the first payload posted; 0 at
	// a sink.
	FirstByte time.Duration
	// What was not copied, by reason.
	Skipped, Failed, Changed, Corrupt int64
	// Missing counts entries of a given manifest that are not at the source.
	Missing int64
	// Grown counts the files that grew while they were copied, up to the size that
	// they had at first.
	Grown int64
	// Kept counts what the destination has kept, as the options want it.
	Kept int64
	// Deleted counts what was deleted, or in a dry run would be. NotDeleted:
	// nothing that the source has not was deleted, because the source could not
	// be listed or read whole, or has not what the given manifest says.
	Deleted    int64
	NotDeleted bool
	// DryRun: nothing was copied or deleted. Counts are of what would be.
	DryRun bool
	// Verified: both ends have the same roots.
	Verified bool
}

func (a *copyResults) summary(t *Tally, p *wire.Terms, link Link, since time.Time) *Summary {
	r, counted := a.finish(), t.Snapshot()
	a.mu.Lock()
	defer a.mu.Unlock()
	sum := &Summary{
		Link: link, Local: wire.HostMemory(""), Remote: wire.HostMemory(""), Content: r.Content, Meta: r.Meta, Hash: p.Hash, PieceBytes: p.PieceBytes,
		Files: a.counts[Copied], Dirs: a.dirs, Links: a.links, Bytes: int64(r.Bytes), WireBytes: counted.WireBytes, Repairs: counted.Repairs,
		Seconds: time.Since(since).Seconds(), FirstByte: counted.FirstByte,
		Skipped: a.counts[Skipped], Failed: a.counts[Failed], Changed: a.counts[Changed], Corrupt: a.counts[Corrupt],
		Missing: a.missing, Verified: a.verified,
		Grown: a.grown, Kept: a.counts[Kept], Deleted: a.deletes.deleted, NotDeleted: a.deletes.notDeleted, DryRun: a.dry,
	}
	if a.dry {
		sum.Bytes = a.dryBytes
	}
	return sum
}

// fileSizes are the bounds of the size of files that are copied, as they travel.
func (o *Options) fileSizes() wire.FileSizes {
	s := wire.FileSizes{MinBytes: uint64(max(0, o.MinFileBytes))}
	if o.MaxFileBytes != 0 {
		s.MaxBytes = uint64(max(0, o.MaxFileBytes)) + 1
	}
	return s
}
