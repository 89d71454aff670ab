package wire

// The flags of a hello. A number that was used once is never reused.
const (
	FlagRecursive      = 1 << 0
	FlagFollow         = 1 << 1
	FlagModes          = 1 << 2
	FlagNoFsync        = 1 << 3
	FlagMustBeDir      = 1 << 4
	FlagMany           = 1 << 5 // several sources
	FlagFlush          = 1 << 6 // GPU memory is flushed after every batch
	FlagDirect         = 1 << 7 // the server's device must access its GPU memory directly
	FlagTimes          = 1 << 8
	FlagLinks          = 1 << 9
	FlagOwner          = 1 << 10
	FlagGroup          = 1 << 11
	FlagHardLinks      = 1 << 12
	FlagXattrs         = 1 << 13
	FlagNumericIDs     = 1 << 14
	FlagDryRun         = 1 << 15 // nothing is changed, and no data sent
	FlagIgnoreExisting = 1 << 16 // files that exist at the destination are kept, except directories
	FlagUpdate         = 1 << 17 // files that are newer at the destination are kept
	FlagDelete         = 1 << 18 // entries that the source does not have are deleted
	FlagEncrypt        = 1 << 19 // headers and payloads of chunks are sealed
	FlagStream         = 1 << 20 // the only entry of a push is a stream, whose size is known at its end
	FlagExisting       = 1 << 21 // entries that do not exist at the destination are not created
	FlagRules          = 1 << 22 // filter rules follow the welcome
	// FlagListed means that only listed names are copied, from the contents of the only
	// source. In a pull the list follows, part by part, as the source requests it.
	FlagListed = 1 << 23
	// FlagGrowing means that files that grow while they are read are copied, up to the
	// size that they had when they were announced.
	FlagGrowing       = 1 << 24
	FlagSameStays     = 1 << 25 // files of the same size and time are kept
	FlagSizeStays     = 1 << 26 // files of the same size are kept
	FlagOneFileSystem = 1 << 28 // the source does not cross file system boundaries
	FlagSizes         = 1 << 29 // files outside the sizes in the hello are not transferred
	FlagResume        = 1 << 30 // the sink keeps what has arrived of files, for a later copy
	FlagRecheck       = 1 << 31 // with FlagResume: the sink reads all of that back before it relies on it
	FlagReadBack      = 1 << 32 // the sink reads every file back from the disk before it publishes it
	// FlagItself means that the destination is the copy itself, even if a directory exists
	// there. Without it, the copy would go into that directory.
	FlagItself = 1 << 33
	// FlagWhole, with FlagItself, means that a directory appears at the destination as a
	// whole, in one step, or not at all.
	FlagWhole    = 1 << 34
	FlagChecksum = 1 << 40 // files of the same size are compared by the digests of their pieces, and equal ones are kept
	FlagAppend   = 1 << 41 // existing files that are shorter at the destination are compared and then extended; no other file is replaced
	FlagInPlace  = 1 << 42 // existing files at the destination are overwritten in place
	FlagACLs     = 1 << 43 // ACLs are preserved, as extended attributes, and with them FlagModes
	// FlagRequireAttributes means that an entry fails unless all its attributes can be
	// set.
	FlagRequireAttributes = 1 << 48
	// FlagNoSpaceCheck makes the sink start regardless of the free space.
	FlagNoSpaceCheck = 1 << 50
	// FlagForceReplace, with FlagWhole, means that an existing directory is replaced
	// whatever it contains.
	FlagForceReplace = 1 << 44
)

// Sets of flags.
const (
	flagsBasic = FlagRecursive | FlagFollow | FlagModes | FlagNoFsync | FlagMustBeDir | FlagMany | FlagFlush | FlagDirect
	// flagsMetadata are the flags for the metadata to preserve, in addition to FlagModes.
	flagsMetadata = FlagTimes | FlagLinks | FlagOwner | FlagGroup | FlagHardLinks | FlagXattrs | FlagACLs | FlagNumericIDs | FlagRequireAttributes
	// flagsOfSink are those with which the destination decides what happens to an entry.
	flagsOfSink = FlagDryRun | FlagIgnoreExisting | FlagUpdate | FlagDelete | FlagExisting | FlagSameStays | FlagSizeStays | FlagSizes | FlagChecksum | FlagAppend | FlagInPlace
	// FlagsKeeping are those with which entries may end as Kept. With FlagsKeepingLater
	// this also applies to files whose data was sent, because the destination checks again
	// when it publishes such a file.
	FlagsKeeping      = FlagIgnoreExisting | FlagUpdate | FlagExisting | FlagSameStays | FlagSizeStays | FlagSizes | FlagAppend
	FlagsKeepingLater = FlagIgnoreExisting | FlagUpdate
	// flagsKnown are the flags that this version supports.
	flagsKnown = flagsBasic | flagsMetadata | FlagEncrypt | FlagRules | FlagListed | FlagStream | FlagGrowing | FlagOneFileSystem | FlagResume | FlagRecheck | FlagReadBack | FlagItself | FlagWhole | FlagForceReplace | FlagNoSpaceCheck |
		flagsOfSink
)
