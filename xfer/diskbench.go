package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// DiskRates is how fast a directory can be written and read, in the way a copy does it.
type DiskRates struct {
	Bytes int64
	// WriteSeconds is from the first byte until the file has its name and both are on the disk.
	// SyncSeconds is the part of it in which nothing was written any more.
	WriteSeconds, SyncSeconds float64
	ReadSeconds               float64
	// FromMemory says that the file was read from the page cache, at least in part, because it
	// could not be dropped from there first. The file system may be in memory only.
	FromMemory bool
}

// WriteMiBPerSecond is the rate of writing, syncs included.
func (d *DiskRates) WriteMiBPerSecond() float64 { return float64(d.Bytes) / (1 << 20) / d.WriteSeconds }

// ReadMiBPerSecond is the rate of reading.
func (d *DiskRates) ReadMiBPerSecond() float64 { return float64(d.Bytes) / (1 << 20) / d.ReadSeconds }

// BenchDisk writes a file of that many bytes to dir, syncs it to the disk, and reads it back, with
// the code and the number of workers of a copy. It always removes the file, even if ctx ends,
// unless the process is killed; then the next copy to dir removes it. It blocks for the disk.
func BenchDisk(ctx context.Context, dir string, bytes int64) (d *DiskRates, err error) {
	root, err := fsys.OpenDirectory(dir)
	if err != nil {
		return nil, err
	}
	if err := root.Close(); err != nil {
		return nil, err
	}
	b := diskBench{path: filepath.Join(dir, dest.ScratchName()), bytes: bytes, rates: DiskRates{Bytes: bytes}}
	defer func() { err = errors.Join(err, b.remove()) }()
	// The bytes do not compress, and no two blocks are alike.
	random := rand.NewChaCha8([32]byte{2})
	b.pattern = make([]byte, manifest.DefaultPieceBytes)
	if _, err := random.Read(b.pattern); err != nil {
		return nil, err
	}
	if err := b.write(ctx); err != nil {
		return nil, err
	}
	if err := b.read(ctx); err != nil {
		return nil, err
	}
	return &b.rates, nil
}

type diskBench struct {
	path    string
	lock    io.Closer // the file's, once it exists
	bytes   int64
	pattern []byte // of a piece
	rates   DiskRates
}

// diskBlock is the interval of numbers in the bytes that are written. Each block is unique, so a
// misplaced block is detected when it is read.
const diskBlock = 4096

// remove removes the file, if it exists.
func (b *diskBench) remove() error {
	if b.lock == nil {
		return nil
	}
	err := os.Remove(b.path)
	if errors.Is(err, os.ErrNotExist) {
		err = nil // it never got its name
	}
	return errors.Join(err, b.lock.Close())
}

// eachPiece makes the workers of a copy take the pieces of the file, in order of offset.
func (b *diskBench) eachPiece(ctx context.Context, do func(piece []byte, off int64) error) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range chunker.DiskWorkers() {
		g.Go(func() error {
			piece := make([]byte, len(b.pattern))
			copy(piece, b.pattern)
			for {
				off := (next.Add(1) - 1) * int64(len(piece))
				if off >= b.bytes {
					return nil
				}
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if err := do(piece[:min(int64(len(piece)), b.bytes-off)], off); err != nil {
					return err
				}
			}
		})
	}
	return g.Wait()
}

// write writes the file as the sink of a copy does.
func (b *diskBench) write(ctx context.Context) error {
	store, err := dest.Open(dest.Options{Dest: b.path, Scratch: true})
	if err != nil {
		return err
	}
	defer store.Close()
	e := manifest.Entry{Type: manifest.File, Path: filepath.Base(b.path), Size: b.bytes, Mode: 0o600}
	if err := store.Place(&e, e.Path); err != nil {
		return err
	}
	begun := time.Now()
	temp, err := store.Create(&e, nil)
	if err != nil {
		return err
	}
	if b.lock, err = temp.HoldLock(); err != nil {
		return errors.Join(err, temp.Discard())
	}
	err = b.eachPiece(ctx, func(piece []byte, off int64) error {
		for at := 0; at+8 <= len(piece); at += diskBlock {
			binary.LittleEndian.PutUint64(piece[at:], uint64(off)+uint64(at))
		}
		_, err := temp.WriteAt(piece, off)
		return err
	})
	if err != nil {
		return errors.Join(err, temp.Discard())
	}
	written := time.Now()
	if err := temp.Finish(); err != nil {
		return errors.Join(err, temp.Discard())
	}
	if err := store.Publish([]*dest.Temp{temp})[0]; err != nil {
		return err
	}
	b.rates.WriteSeconds, b.rates.SyncSeconds = time.Since(begun).Seconds(), time.Since(written).Seconds()
	return nil
}

// errWrongBytes says that the disk returned other bytes than were written.
var errWrongBytes = fmt.Errorf("%w: the disk gave other bytes than it took", ErrIntegrity)

// read reads the file as the source of a copy does, from the disk.
func (b *diskBench) read(ctx context.Context) error {
	left, err := dropFromMemory(b.path, b.bytes)
	if err != nil {
		return err
	}
	tree, err := chunker.OpenLocal(namedSources([]string{b.path}), false)
	if err != nil {
		return err
	}
	defer tree.Close()
	if left {
		tree.ReadBy(fileset.IODirect)
	}
	begun := time.Now()
	f, err := tree.Open(filepath.Base(b.path))
	if err != nil {
		return err
	}
	defer f.Close()
	f.AdviseSequential()
	err = b.eachPiece(ctx, func(piece []byte, off int64) error {
		if err := f.ReadPart(piece, off, b.bytes, f.Uncached(piece, off), func() error { return nil }); err != nil {
			return err
		}
		for at := 0; at+8 <= len(piece); at += diskBlock {
			if binary.LittleEndian.Uint64(piece[at:]) != uint64(off)+uint64(at) {
				return fmt.Errorf("%w: at byte %d of %q", errWrongBytes, off+int64(at), b.path)
			}
		}
		return nil
	})
	b.rates.ReadSeconds = time.Since(begun).Seconds()
	b.rates.FromMemory = left && tree.Read().Of(fileset.IODirect) == 0
	return err
}

// dropFromMemory makes the kernel drop its cached pages of a file that is on the disk
// (posix_fadvise(2), POSIX_FADV_DONTNEED), and checks whether any are left: a read that does not
// wait for the disk then succeeds (preadv2(2), RWF_NOWAIT).
func dropFromMemory(path string, bytes int64) (left bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, err
	}
	defer f.Close()
	fd := int(f.Fd())
	if err := unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED); err != nil {
		return true, nil
	}
	const looks = 16
	var one [1]byte
	for i := int64(looks - 1); i >= 0; i-- { // each check makes the kernel read what follows
		// If the file system cannot report it, the data may be in memory.
		if _, err := unix.Preadv2(fd, [][]byte{one[:]}, bytes/looks*i, unix.RWF_NOWAIT); err != unix.EAGAIN {
			return true, nil
		}
	}
	return false, nil
}
