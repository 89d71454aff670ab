package xfer

import (
	"fmt"
	"time"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/fault"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

// The bounds and defaults of a user's choices. They hold at both ends.
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
	// MaxGPUs bounds the index of a GPU, including one that a peer names.
	MaxGPUs = wire.MaxGPUs
	// MaxRingBytes bounds one end's ring.
	MaxRingBytes = wire.MaxRingBytes
	// DefaultPort is the TCP port of serve. rdma_cm uses the next port.
	DefaultPort = 7473
)

// Options say how to make a copy. The zero value of a field means its default.
type Options struct {
	Recursive bool
	Follow    bool // -L
	// OneFileSystem copies a directory on which another file system is mounted, below a source, as
	// an empty directory.
	OneFileSystem bool
	// Names lists the entries to copy of the one source's contents. Nil means everything.
	Names *chunker.List
	// Unfit returns why a Push of several sources must not copy one of them, a file or link. That
	// source fails, and the others are copied. A nil Unfit refuses none.
	Unfit func(source string) error
	// Rules say what the copy leaves out. The first rule that matches counts.
	Rules   []filter.Rule
	NoFsync bool
	// IO is the I/O mode by which the sink writes files, and the source reads them (see
	// chunker.Tree.ReadBy). Any mode but fileset.IOAuto is forced at the sink: a copy to a file
	// system that does not have it is an ErrUnsupported.
	IO fileset.IOMode
	// Transfers is how many large files are in progress in parallel, up to MaxTransfers. 0 stands
	// for DefaultTransfers. A copy that writes a manifest has one.
	Transfers int
	// NoResume begins every file again, and keeps nothing of a file that was not completed. Recheck
	// re-verifies data left by an interrupted copy before resuming. A copy that writes a manifest
	// begins every file again.
	NoResume, Recheck bool
	// PartialDir is where the destination keeps partial files: in one directory, if it is an
	// absolute path, or in a directory of that name next to each target. Entries with that name are
	// left out, and not deleted. Empty: next to the targets.
	PartialDir string
	// VerifyWritten reads every file back from the disk, and checks it, before it gets its name.
	VerifyWritten bool
	// CopyGrowing copies files that grow while they are read, up to their size when they were
	// found. It has no effect on a copy that must match a Manifest.
	CopyGrowing bool

	// These say what the copy keeps of the source, as in rsync: links as links, which are otherwise
	// left out; permission bits; modification times; owner and group by name, or with NumericIDs by
	// number; hard links; extended attributes. ACLs are POSIX ACLs, and imply Perms.
	Links, Perms, Times, Owner, Group, NumericIDs, HardLinks, Xattrs, ACLs bool
	// RequireAttributes fails an entry that lacks such an attribute. Otherwise the summary lists
	// them.
	RequireAttributes bool
	// Privileged lets a Pull keep set-ID bits of files, and xattrs outside the user namespace.
	Privileged bool

	// These options are for the destination. They have the meanings that rsync gives.
	DryRun         bool
	IgnoreExisting bool // files that exist there are kept, but not directories
	Existing       bool // entries that do not exist there are not made
	Update         bool // -u: files that are newer there are kept
	// With Times, the destination keeps files of the same size and time, unless IgnoreTimes or a
	// manifest requires a copy. With SizeOnly it keeps all files of the same size.
	IgnoreTimes, SizeOnly bool
	// Whole makes the copy of one directory appear at the destination in one step, or not at all.
	// The destination is the copy itself.
	Whole bool
	// ForceReplace, with Whole, replaces an existing directory whatever its contents. Without it
	// the directory must be one that Whole made, or contain nothing at its top that the source does
	// not have.
	ForceReplace bool
	// Checksum compares files of the same size by the digests of their pieces, and sends only the
	// pieces that differ.
	Checksum bool
	// BasisManifest, with Checksum and in a Pull, is a manifest with identities of the
	// destination's files. Files that match it are not read there.
	BasisManifest string
	// AppendVerify takes a file that is shorter at the destination for the beginning of the
	// source's: it is compared as with Checksum, and the rest is sent. Files that are not shorter
	// there are kept.
	AppendVerify bool
	// InPlace writes into the existing files at the destination. A file that was not completed is
	// then partly old and partly new.
	InPlace bool
	// NoSpaceCheck begins the copy however little space there seems to be at the destination.
	NoSpaceCheck   bool
	Delete         bool // entries that the source does not have are deleted at the end
	DeleteExcluded bool // Delete, also of entries that rules exclude
	// MinFileBytes and MaxFileBytes bound the size of files: smaller and larger files are not
	// transferred. MaxFileBytes is 0 for any size, and negative for empty files only.
	MinFileBytes, MaxFileBytes int64
	// MaxDelete is how many files and directories are deleted at most. 0 means any number, and a
	// negative value none.
	MaxDelete int64

	Transport  string // "auto", "verbs" or "tcp"
	Require    string // "", "verbs" or "gpudirect"
	Rail       string // device name or address of the first local rail
	RemoteRail string // of the server's rail
	trace      link.Trace

	// Rails is how many rails carry a copy at most: AllRails for every one that reaches the server.
	// 0 is AllRails over RDMA devices, and 1 over TCP. MoreRails names further local rails if Rail
	// names one.
	Rails     int
	MoreRails []string
	// QPs and Slots, if 0, follow the rate of the local RDMA devices: 1 and DefaultSlots if the
	// rate is not known, or without RDMA. For a distant server they follow the amount of data that
	// the path keeps in flight.
	QPs        int
	ChunkBytes int
	Slots      int
	// MostSlots bounds Slots if they follow the rate. 0 is MaxSlots.
	MostSlots int
	Hash      manifest.Algorithm
	Compress  Compress
	// GPU and RemoteGPU say where each end has its slots: "" or "off" for host memory, "auto", or a
	// name that gpu.Find accepts.
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
	// ForceImmSend sends every immediate as Write + Send.
	ForceImmSend bool
	// Wire says how this end's packets are sent.
	Wire rdma.Wire

	// Manifest is the name of a manifest that the copy must match. WriteManifest is the name of one
	// to write.
	Manifest      string
	WriteManifest string

	// Tries are the attempts of this copy, for a caller that makes several. Nil: there is one.
	Tries *Tries

	// Started is when the program began. The time to the first byte counts from there.
	Started  time.Time
	Timeouts link.Timeouts
	// Report receives the events. Several goroutines call it concurrently. It may be nil.
	Report func(Event)
	// Tally counts while the copy runs. It may be nil.
	Tally *Tally

	follows      linkSizes
	wantManifest *manifest.Reader
	// local and remote are where this end's slots and the server's are to be, from GPU and the
	// options like it.
	local, remote ring.Placement
	store         *dest.Sink // the store of a pull
}

func (o *Options) report(e Event) {
	if o.Report != nil {
		e.Text = fault.OneLine(e.Text)
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
	if o.Timeouts == (link.Timeouts{}) {
		o.Timeouts = link.DefaultTimeouts()
	}
	if o.Tally == nil {
		o.Tally = &Tally{}
	}
	if o.Started.IsZero() {
		o.Started = time.Now()
	}
	o.Tally.Start(o.Started)
}

// Compress says how a source may store chunks.
type Compress = wire.Compress

// The ways to compress. CompressAuto uses s2 if s2 saves enough bytes.
const (
	CompressOff  = wire.CompressOff
	CompressZstd = wire.CompressZstd
	CompressS2   = wire.CompressS2
	CompressAuto = wire.CompressAuto
)

// ParseCompress parses a way to compress, as the command line names it.
func ParseCompress(s string) (Compress, error) {
	for i, w := range [...]string{"off", "zstd", "s2", "auto"} {
		if s == w {
			return Compress(i), nil
		}
	}
	return 0, fmt.Errorf("%w: compression %q; known are off, zstd, s2, auto", ErrUsage, s)
}
