//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"fmt"
	"math"

	"golang.org/x/sys/unix"
)

// Hasher digests device memory with BLAKE3, many pieces at once. It has memory
// for chaining values on the GPU, and pinned memory for the table of jobs and
// for the digests. Only one goroutine at a time may use it.
//
// The kernels write the digests to the pinned memory if they can access it. The
// table is copied to the GPU, because each block of threads searches it.
type Hasher struct {
	ctx      *Context
	kernels  *hashKernels
	maxJobs  int
	maxBytes int
	layout   hashLayout

	scratch *Memory
	host    []byte // same layout as scratch, without chaining values
	pinned  *Pinned
	done    *Mark // recorded after the work that Begin queued

	jobs int       // number of jobs of the last Begin
	args [5]uint64 // arguments of a launch; a field, so that a launch allocates nothing
}

// hashLayout is the layout of a Hasher's memory, with offsets in bytes. The table is at
// 0. The digests are at the same offset on the GPU and on the host.
type hashLayout struct {
	digests, cvs, end int
}

const (
	digestBytes = 32
	// hashChunksMax keeps the kernels' counts within 31 bits.
	hashChunksMax = math.MaxInt32 - tileChunks
)

// NewHasher makes a Hasher for at most maxJobs jobs and maxBytes bytes at once. It takes
// 32 bytes of device memory for each KiB of maxBytes, and 100 for each job. The error is
// ErrUnsupported below compute capability 7.0. The first Hasher of a GPU blocks while the
// kernels are loaded: this takes milliseconds if there is machine code for the GPU;
// otherwise the driver compiles the kernels, which can take seconds if they are not in its
// cache (~/.nv/ComputeCache).
func (c *Context) NewHasher(maxJobs, maxBytes int) (*Hasher, error) {
	if maxJobs <= 0 || maxJobs > hashChunksMax || maxBytes < 0 || maxBytes/hashChunkBytes > hashChunksMax-maxJobs {
		return nil, fmt.Errorf("digest %d bytes in %d jobs at once: too many, or none", maxBytes, maxJobs)
	}
	if err := c.canDigest(); err != nil {
		return nil, err
	}
	h := &Hasher{ctx: c, maxJobs: maxJobs, maxBytes: maxBytes}
	h.layout.digests = (tableBytes(maxJobs) + 63) / 64 * 64
	h.layout.cvs = h.layout.digests + maxJobs*digestBytes
	h.layout.end = h.layout.cvs + (maxBytes/hashChunkBytes+maxJobs)*digestBytes
	if err := h.make(); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// canDigest returns ErrUnsupported if the GPU is too old for the kernels.
func (c *Context) canDigest() error {
	if c.device.ComputeMajor < 7 {
		return fmt.Errorf("digest on GPU %d: compute capability %d.%d is below 7.0: %w",
			c.device.Index, c.device.ComputeMajor, c.device.ComputeMinor, ErrUnsupported)
	}
	return nil
}

// make allocates everything that Close frees. If it fails, the caller frees the
// parts that were allocated.
func (h *Hasher) make() (err error) {
	if h.kernels, err = h.ctx.kept.hash(h.ctx.life); err != nil {
		return err
	}
	if h.scratch, err = h.ctx.Alloc(h.layout.end); err != nil {
		return err
	}
	h.host, err = unix.Mmap(-1, 0, h.layout.cvs, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return fmt.Errorf("map %d bytes: %w", h.layout.cvs, err)
	}
	if h.pinned, err = h.ctx.Pin(h.host); err != nil {
		return err
	}
	h.done, err = h.ctx.NewMark()
	return err
}

// Begin queues the digesting of all jobs in s. The memory of the jobs must
// remain open and unchanged until that work is done. If a job violates a rule
// of HashJob, or there are more jobs or bytes than the Hasher was made for,
// Begin returns an error and queues nothing. If the work of an earlier Begin is
// still in progress, Begin blocks until it is done.
func (h *Hasher) Begin(s *Stream, jobs []HashJob) error {
	if h.done == nil {
		return fmt.Errorf("digest: %w", ErrClosed)
	}
	if err := h.check(jobs); err != nil {
		return fmt.Errorf("digest: %w", err)
	}
	return h.begin(s, jobs)
}

// begin is Begin for jobs that have been checked.
func (h *Hasher) begin(s *Stream, jobs []HashJob) error {
	if err := h.done.Wait(); err != nil {
		return err
	}
	h.jobs = 0
	if len(jobs) == 0 {
		return nil
	}
	if err := h.queue(s, jobs); err != nil {
		// A part of the work may be in progress, and the next Begin must not
		// change its table.
		if waited := s.Drain(); h.ctx.Lost() == nil {
			err = errors.Join(err, waited)
		}
		return err
	}
	h.jobs = len(jobs)
	return nil
}

func (h *Hasher) check(jobs []HashJob) error {
	if len(jobs) > h.maxJobs {
		return fmt.Errorf("%d jobs at once, of at most %d", len(jobs), h.maxJobs)
	}
	left := h.maxBytes
	for i := range jobs {
		j := &jobs[i]
		if err := j.checkIn(h.ctx); err != nil {
			return fmt.Errorf("job %d: %w", i, err)
		}
		if j.Len > left {
			return fmt.Errorf("job %d: more than %d bytes at once", i, h.maxBytes)
		}
		left -= j.Len
	}
	return nil
}

// checkIn is check for a job of that Context's GPU. The memory may belong to
// another user of the GPU.
func (j *HashJob) checkIn(c *Context) error {
	if err := j.check(); err != nil {
		return err
	}
	if j.Memory.ctx.kept != c.kept {
		return fmt.Errorf("memory %w", errOtherGPU)
	}
	if err := j.Memory.use(); err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	j.Memory.release()
	return nil
}

func (h *Hasher) queue(s *Stream, jobs []HashJob) error {
	chunks, wide := putTable(h.host, jobs, func(i int) uint64 { return jobs[i].Memory.Addr() + uint64(jobs[i].Offset) })
	wideAt := len(jobs) * jobLineBytes
	if err := s.ToDevice(h.scratch, 0, h.host[:wideAt+4*wide]); err != nil {
		return err
	}
	table := h.scratch.Addr()
	digests, cvs := h.digestsAt()+uint64(h.layout.digests), table+uint64(h.layout.cvs)
	h.args = [5]uint64{table, uint64(len(jobs)), uint64(chunks), cvs, digests}
	if err := s.launch(h.kernels.tiles, (chunks+tileChunks-1)/tileChunks, tileChunks, 0, h.args[:]...); err != nil {
		return err
	}
	if wide > 0 {
		h.args = [5]uint64{table, table + uint64(wideAt), cvs, digests}
		if err := s.launch(h.kernels.join, wide, tileChunks, 0, h.args[:4]...); err != nil {
			return err
		}
	}
	if h.pinned.addr == 0 {
		got := h.host[h.layout.digests:][:len(jobs)*digestBytes]
		if err := s.ToHost(got, h.scratch, h.layout.digests); err != nil {
			return err
		}
	}
	return s.Record(h.done)
}

// digestsAt returns the GPU's address of the memory that receives the digests,
// which has the same layout.
func (h *Hasher) digestsAt() uint64 {
	if h.pinned.addr != 0 {
		return uint64(h.pinned.addr)
	}
	return h.scratch.Addr()
}

// Digest returns the digest of job i of the last Begin. It is valid after a wait for the
// stream, or for a mark after that Begin, until the next Begin or Close.
func (h *Hasher) Digest(i int) [32]byte {
	at := h.host[h.layout.digests:][:h.jobs*digestBytes]
	return [32]byte(at[i*digestBytes:])
}

// Close waits for the work of the last Begin, then frees the Hasher's memory. Closing
// again does nothing.
func (h *Hasher) Close() error {
	var errs []error
	if h.done != nil {
		if h.ctx.Lost() == nil {
			errs = append(errs, h.ctx.endedWait(h.done.wait(context.Background(), closePatience)))
		}
		errs = append(errs, h.done.Close())
	}
	if h.pinned != nil {
		errs = append(errs, h.pinned.Close())
	}
	// A GPU that hangs may still write to the memory.
	if h.host != nil && h.ctx.Lost() == nil {
		errs = append(errs, unix.Munmap(h.host))
	}
	if h.scratch != nil {
		errs = append(errs, h.scratch.Close())
	}
	h.done, h.pinned, h.host, h.scratch, h.kernels, h.jobs = nil, nil, nil, nil, nil, 0
	return errors.Join(errs...)
}
