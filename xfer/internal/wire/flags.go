package wire

// The flags of a hello. A number that was used once keeps its meaning.
const (
	FlagRecursive      = 1 << 0
	FlagFollow         = 1 << 1
	FlagModes          = 1 << 2
	FlagNoFsync        = 1 << 3
	FlagMustBeDir      = 1 << 4
	FlagMany           = 1 << 5 // several sources
	FlagFlush          = 1 << 6 // GPU memory is flushed after every batch
	FlagDirect         = 1 << 7 // the server's device must reach its GPU memory by itself
	FlagTimes          = 1 << 8
	FlagLinks          = 1 << 9
	FlagOwner          = 1 << 10
	FlagGroup          = 1 << 11
	FlagHardLinks      = 1 << 12
	FlagXattrs         = 1 << 13
	FlagNumericIDs     = 1 << 14
	FlagDryRun         = 1 << 15 // nothing is changed, and no data sent
	FlagIgnoreExisting = 1 << 16 // files that exist at the destination stay, except directories
	FlagUpdate         = 1 << 17 // files that are newer at the destination stay
	FlagDelete         = 1 << 18 // entries that the source does not have are deleted
	FlagEncrypt        = 1 << 19 // headers and payloads of chunks are sealed
	FlagStream         = 1 << 20 // the only entry of a push is a stream, whose size is known at its end
	FlagExisting       = 1 << 21 // entries that do not exist at the destination are not made
	FlagRules          = 1 << 22 // filter rules follow the welcome
	// FlagListed says that only what a list names is copied, from the contents of the
	// one source. In a pull the list follows, part by part, as the source asks for it.
	FlagListed = 1 << 23
	// FlagGrowing says that files that grow while they are read are copied, at the size
	// that they had when they were announced.
	FlagGrowing       = 1 << 24
	FlagSameStays     = 1 << 25 // files of the same size and time stay
	FlagSizeStays     = 1 << 26 // files of the same size stay
	FlagOneFileSystem = 1 << 28 // the source stays in the file system of each source
	FlagSizes         = 1 << 29 // files beyond the sizes in the hello are not transferred
	FlagResume        = 1 << 30 // the sink keeps what has arrived of files for a later copy
	FlagRecheck       = 1 << 31 // beside FlagResume: the sink reads all of that back before it counts
	FlagReadBack      = 1 << 32 // the sink reads every file back from the disk before it gets its name
	// FlagItself says that the destination is the copy itself, also where a directory is
	// there already. Without it, the copy would go into that directory.
	FlagItself = 1 << 33
	// FlagWhole, beside FlagItself, says that a directory appears at the destination whole,
	// in one step, or not at all.
	FlagWhole    = 1 << 34
	FlagChecksum = 1 << 40 // files of the same size are compared by the digests of their pieces, and what is the same stays
	FlagAppend   = 1 << 41 // files that are shorter at the destination begin with what is there, which is compared; no other file is replaced
	FlagInPlace  = 1 << 42 // files that exist at the destination are written themselves
	FlagACLs     = 1 << 43 // ACLs are kept, among extended attributes, and with them FlagModes
	// FlagRequireAttributes says that an entry fails that does not get all attributes.
	FlagRequireAttributes = 1 << 48
	// FlagNoSpaceCheck has the sink begin whatever room there seems to be.
	FlagNoSpaceCheck = 1 << 50
	// FlagForceReplace, beside FlagWhole, says that a directory that is there is replaced
	// whatever it holds.
	FlagForceReplace = 1 << 44
)

// Sets of flags.
const (
	flagsBasic = FlagRecursive | FlagFollow | FlagModes | FlagNoFsync | FlagMustBeDir | FlagMany | FlagFlush | FlagDirect
	// flagsMetadata are the flags for what is kept of the source's metadata, beside
	// FlagModes.
	flagsMetadata = FlagTimes | FlagLinks | FlagOwner | FlagGroup | FlagHardLinks | FlagXattrs | FlagACLs | FlagNumericIDs | FlagRequireAttributes
	// flagsOfSink let the destination decide what happens to an entry.
	flagsOfSink = FlagDryRun | FlagIgnoreExisting | FlagUpdate | FlagDelete | FlagExisting | FlagSameStays | FlagSizeStays | FlagSizes | FlagChecksum | FlagAppend | FlagInPlace
	// FlagsKeeping let entries end as Kept. FlagsKeepingLater do the same for files
	// whose data was sent, because the destination looks again when such a file gets
	// its name.
	FlagsKeeping      = FlagIgnoreExisting | FlagUpdate | FlagExisting | FlagSameStays | FlagSizeStays | FlagSizes | FlagAppend
	FlagsKeepingLater = FlagIgnoreExisting | FlagUpdate
	// flagsKnown are the flags that this version understands.
	flagsKnown = flagsBasic | flagsMetadata | FlagEncrypt | FlagRules | FlagListed | FlagStream | FlagGrowing | FlagOneFileSystem | FlagResume | FlagRecheck | FlagReadBack | FlagItself | FlagWhole | FlagForceReplace | FlagNoSpaceCheck |
		flagsOfSink
)
