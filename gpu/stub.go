//go:build !linux || !cgo

package gpu

import "context"

// Driver replaces NVIDIA's driver in a binary built without it.
type Driver struct{}

// Open fails with a ProbeError.
func Open() (*Driver, error) {
	return nil, &ProbeError{
		Reason: NotBuilt,
		Detail: "this binary was built without GPUs",
		Hint:   "build on Linux with CGO_ENABLED=1 and a C compiler",
	}
}

// Version is empty.
func (*Driver) Version() string { return "" }

// Devices is empty.
func (*Driver) Devices() []Device { return nil }

// Lost is nil.
func (*Driver) Lost() error { return nil }

// OnLost does nothing.
func (*Driver) OnLost(func(error)) {}

// Close does nothing.
func (*Driver) Close() error { return nil }

// Use fails.
func (*Driver) Use(context.Context, int) (*Context, error) { return nil, ErrUnsupported }

// Context is a GPU in use.
type Context struct{}

// Device describes the GPU.
func (*Context) Device() Device { return Device{} }

// Alloc fails.
func (*Context) Alloc(int) (*Memory, error) { return nil, ErrUnsupported }

// Pin fails.
func (*Context) Pin([]byte) (*Pinned, error) { return nil, ErrUnsupported }

// NewStream fails.
func (*Context) NewStream() (*Stream, error) { return nil, ErrUnsupported }

// NewHasher fails.
func (*Context) NewHasher(int, int) (*Hasher, error) { return nil, ErrUnsupported }

// NewSubmitter fails.
func (*Context) NewSubmitter(int) (*Submitter, error) { return nil, ErrUnsupported }

// FlushWrites fails.
func (*Context) FlushWrites() error { return ErrUnsupported }

// Lost is nil.
func (*Context) Lost() error { return nil }

// Close does nothing.
func (*Context) Close() error { return nil }

// Memory is device memory.
type Memory struct{}

// Addr is 0.
func (*Memory) Addr() uint64 { return 0 }

// Len is 0.
func (*Memory) Len() int { return 0 }

// Registrable fails.
func (*Memory) Registrable() error { return ErrUnsupported }

// DMABuf fails.
func (*Memory) DMABuf() (fd int, offset uint64, err error) { return -1, 0, ErrUnsupported }

// CloseDMABuf does nothing.
func (*Memory) CloseDMABuf() error { return nil }

// Close does nothing.
func (*Memory) Close() error { return nil }

// Pinned is host memory that the GPU can access.
type Pinned struct{}

// Close does nothing.
func (*Pinned) Close() error { return nil }

// Stream is a sequence of work on the GPU.
type Stream struct{}

// ToDevice fails.
func (*Stream) ToDevice(*Memory, int, []byte) error { return ErrUnsupported }

// ToHost fails.
func (*Stream) ToHost([]byte, *Memory, int) error { return ErrUnsupported }

// Copy fails.
func (*Stream) Copy(*Memory, int, *Memory, int, int) error { return ErrUnsupported }

// Record fails.
func (*Stream) Record(*Mark) error { return ErrUnsupported }

// Wait fails.
func (*Stream) Wait() error { return ErrUnsupported }

// Drain fails.
func (*Stream) Drain() error { return ErrUnsupported }

// Close does nothing.
func (*Stream) Close() error { return nil }

// NewMark fails.
func (*Context) NewMark() (*Mark, error) { return nil, ErrUnsupported }

// NewWordMark fails.
func (*Context) NewWordMark() (*Mark, error) { return nil, ErrUnsupported }

// Mark is a position in a stream.
type Mark struct{}

// Wait fails.
func (*Mark) Wait() error { return ErrUnsupported }

// Close does nothing.
func (*Mark) Close() error { return nil }

// Hasher digests device memory.
type Hasher struct{}

// Begin fails.
func (*Hasher) Begin(*Stream, []HashJob) error { return ErrUnsupported }

// Digest is zero.
func (*Hasher) Digest(int) [32]byte { return [32]byte{} }

// Close does nothing.
func (*Hasher) Close() error { return nil }

// Submitter digests device memory in launches that all users of a GPU share.
type Submitter struct{}

// Digest fails.
func (*Submitter) Digest([]HashJob, [][32]byte) error { return ErrUnsupported }

// Close does nothing.
func (*Submitter) Close() error { return nil }
