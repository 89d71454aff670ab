package wire

import (
	"errors"
	"fmt"
	"strings"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

// IsAnsweredBy reports whether a welcome grants exactly what the hello requests. The
// welcome's name may differ, and the welcome repeats no path. It omits what earlier
// attempts have settled if the sink does not have that any more.
func (h *Hello) IsAnsweredBy(w *Hello) bool {
	granted := w.Terms
	granted.Name = h.Terms.Name
	if granted.Settled == "" {
		granted.Settled = h.Terms.Settled
	}
	return granted == h.Terms && w.GPU == h.GPU && w.GPUName == h.GPUName && len(w.Paths) == 0
}

// Check compares a hello with the bounds and with the terms that the rail was made for.
func (h *Hello) Check(made *Terms) error {
	if h.Terms.Slots != made.Slots || h.Terms.QPs != made.QPs || h.Terms.ChunkBytes != made.ChunkBytes || made.ChunkBytes < MinChunkBytes {
		return fmt.Errorf("%w: a hello that does not fit its connection", ErrProtocol)
	}
	if err := manifest.CheckPieceBytes(h.Terms.PieceBytes); err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	if !h.Terms.Hash.Valid() && !(h.Terms.Mode == ModeBench && h.Terms.Hash == 0) {
		return fmt.Errorf("%w: hash %d", ErrProtocol, h.Terms.Hash)
	}
	switch h.Terms.Mode {
	case ModePing, ModeBench:
		return h.checkNoFiles()
	case ModeExpand:
		return h.checkPatterns()
	case ModePush, ModePull:
		return h.checkFiles()
	}
	return fmt.Errorf("%w: mode %d", ErrProtocol, h.Terms.Mode)
}

// checkNoFiles refuses the hello of a bench or of latency rounds that requests more than
// host memory, sealed or not.
func (h *Hello) checkNoFiles() error {
	if h.Terms.Flags&^FlagEncrypt != 0 || h.Terms.Codec != CompressOff || h.GPU != 0 || h.Terms.MaxDelete != 0 || h.Terms.Sizes.IsSet() || h.Terms.IO != 0 || h.Terms.Transfers != 0 || h.Terms.Settled != "" || h.Terms.Stage != (fileset.StageID{}) || h.Terms.PartialDir != "" || len(h.Paths) > 0 || h.Terms.Name != "" {
		return fmt.Errorf("%w: a %s with flags %#x, codec %d, GPU %d, %d paths", ErrProtocol, h.Terms.Mode, h.Terms.Flags, h.Terms.Codec, h.GPU, len(h.Paths))
	}
	return nil
}

// checkFiles refuses the hello of a copy if its fields are inconsistent.
func (h *Hello) checkFiles() error {
	if h.Terms.Codec != CompressOff && h.Terms.ChunkBytes > MaxCompressedChunkBytes {
		return fmt.Errorf("%w: compressed chunks of %d bytes", ErrProtocol, h.Terms.ChunkBytes)
	}
	if err := h.checkSinkFlags(); err != nil {
		return err
	}
	if h.Terms.PieceBytes > int64(h.Terms.ChunkBytes) {
		return fmt.Errorf("%w: pieces of %d bytes in chunks of %d", ErrProtocol, h.Terms.PieceBytes, h.Terms.ChunkBytes)
	}
	if err := errors.Join(h.checkStream(), h.checkAgain(), h.checkWhole()); err != nil {
		return err
	}
	if h.Terms.PartialDir != "" && (h.Terms.Mode != ModePush || h.Terms.Has(FlagStream)) {
		return fmt.Errorf("%w: a %s with a directory for partial files", ErrProtocol, h.Terms.Mode)
	}
	if h.Terms.Flags&FlagListed != 0 && h.Terms.Flags&(FlagMany|FlagStream) != 0 {
		return fmt.Errorf("%w: a list of several sources, or of a stream", ErrProtocol)
	}
	if len(h.Paths) == 0 || (h.Terms.Mode == ModePush && len(h.Paths) != 1) || len(h.Paths) > 1 != (h.Terms.Flags&FlagMany != 0) && h.Terms.Mode == ModePull {
		return fmt.Errorf("%w: %d paths", ErrProtocol, len(h.Paths))
	}
	return nil
}

// checkPatterns refuses the hello of an expansion that has no paths, or that has other
// fields than those and a bench's.
func (h *Hello) checkPatterns() error {
	bare := *h
	bare.Paths = nil
	if err := bare.checkNoFiles(); err != nil {
		return err
	}
	if len(h.Paths) == 0 {
		return fmt.Errorf("%w: a %s at no path", ErrProtocol, h.Terms.Mode)
	}
	return nil
}

// checkSinkFlags refuses a hello that checkSinkOptions would not allow.
func (h *Hello) checkSinkFlags() error {
	deletes := h.Terms.Flags&FlagDelete != 0
	switch err := h.Terms.Sizes.check(h.Terms.Flags); {
	case err != nil:
		return err
	case deletes && h.Terms.Flags&FlagRecursive == 0:
		return fmt.Errorf("%w: deletion without directories", ErrProtocol)
	case deletes && h.Terms.Flags&FlagListed != 0:
		return fmt.Errorf("%w: deletion by a list", ErrProtocol)
	case h.Terms.Flags&FlagSameStays != 0 && h.Terms.Flags&FlagTimes == 0:
		return fmt.Errorf("%w: files of the same time are to stay, and times are not kept", ErrProtocol)
	case h.Terms.Flags&FlagChecksum != 0 && h.Terms.Flags&(FlagSameStays|FlagSizeStays|FlagAppend) != 0:
		return fmt.Errorf("%w: files are to be compared, and to stay without that", ErrProtocol)
	case h.Terms.Flags&FlagRecheck != 0 && h.Terms.Flags&FlagResume == 0:
		return fmt.Errorf("%w: what arrived earlier is to be checked, and nothing is kept", ErrProtocol)
	case !deletes && !h.Terms.Has(FlagWhole) && h.Terms.MaxDelete != 0:
		return fmt.Errorf("%w: a bound of deletion without deletion", ErrProtocol)
	}
	return nil
}

// checkPartialDir refuses an invalid directory for partial files.
func checkPartialDir(dir string) error {
	if err := fileset.CheckPartialDir(dir); err != nil {
		return fmt.Errorf("%w: partial files in %q: %w", ErrProtocol, dir, err)
	}
	return nil
}

// checkSettled refuses an invalid path of an entry.
func checkSettled(path string) error {
	if err := manifest.CheckPath(path); err != nil {
		return fmt.Errorf("%w: settled up to %q: %w", ErrProtocol, path, err)
	}
	return nil
}

// checkAgain refuses the fields of a copy that continues an earlier attempt if that cannot
// have happened. With hard links it cannot: the names of a file that is not sent again
// would lack their first.
func (h *Hello) checkAgain() error {
	switch {
	case h.Terms.Settled != "" && h.Terms.Flags&(FlagStream|FlagNoFsync|FlagHardLinks) != 0,
		h.Terms.Flags&FlagItself != 0 && h.Terms.Flags&(FlagStream|FlagMany) != 0:
		return fmt.Errorf("%w: a copy that goes on behind %q, with flags %#x", ErrProtocol, h.Terms.Settled, h.Terms.Flags)
	}
	return nil
}

// checkWhole refuses inconsistent fields of a copy that must appear as a whole: the
// existing files of the destination do not determine the content of the new tree.
func (h *Hello) checkWhole() error {
	const others = FlagMany | FlagListed | FlagStream | FlagDelete | FlagUpdate | FlagIgnoreExisting | FlagExisting | FlagSizes | FlagChecksum | FlagAppend | FlagInPlace
	whole := h.Terms.Has(FlagWhole)
	if whole && (!h.Terms.Has(FlagItself) || !h.Terms.Has(FlagRecursive) || h.Terms.Has(others)) || !whole && (h.Terms.Stage != (fileset.StageID{}) || h.Terms.Has(FlagForceReplace)) {
		return fmt.Errorf("%w: a whole tree with flags %#x", ErrProtocol, h.Terms.Flags)
	}
	return nil
}

// checkStream refuses a hello about a stream that no client sends.
func (h *Hello) checkStream() error {
	if h.Terms.Flags&FlagStream == 0 {
		return nil
	}
	if h.Terms.Mode != ModePush || h.Terms.Flags&(FlagRecursive|FlagMany|FlagMustBeDir|FlagHardLinks|FlagRules|FlagGrowing|FlagOneFileSystem|FlagResume|FlagRecheck|flagsOfSink) != 0 || h.GPU != 0 {
		return fmt.Errorf("%w: a stream with mode %d, flags %#x, GPU %d", ErrProtocol, h.Terms.Mode, h.Terms.Flags, h.GPU)
	}
	return nil
}

// maxGPUNameBytes bounds the name of a GPU: a whole UUID with its prefix.
const maxGPUNameBytes = 40

// mayNameGPU reports whether a name only has the characters of an index, a UUID or a PCI
// address. gpu.Find decides whether it names a GPU.
func mayNameGPU(name string) bool {
	return len(name) <= maxGPUNameBytes && strings.IndexFunc(name, func(r rune) bool {
		return !('0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || strings.ContainsRune("-:.", r))
	}) < 0
}

// checkGPU refuses a request that names no GPU, or two.
func (h *Hello) checkGPU() error {
	if named := GPUWish(h.GPU) == GPUNamed; named != (h.GPUName != "") || named && !mayNameGPU(h.GPUName) {
		return fmt.Errorf("%w: GPU %d of a name of %d bytes", ErrProtocol, h.GPU, len(h.GPUName))
	}
	return nil
}
