package gpu

import (
	"errors"
	"fmt"
)

// Errors that callers check for.
var (
	// ErrUnsupported: this device, driver or build lacks the feature.
	ErrUnsupported = errors.New("not supported here")
	// ErrOutOfMemory: the device has too little free memory.
	ErrOutOfMemory = errors.New("out of device memory")
	// ErrClosed: the object was closed.
	ErrClosed = errors.New("closed")
)

// ProbeReason classifies why there is no GPU to use.
type ProbeReason uint8

// The reasons, in the order in which Open and Use check for them.
const (
	NotBuilt  ProbeReason = iota + 1 // this binary was built without cgo
	NoLibrary                        // libcuda.so.1 is missing
	OldDriver                        // it lacks a required symbol
	NoDriver                         // the kernel driver is not loaded, or has another version
	NoDevice                         // the driver reports no GPU, or no visible one
	BadDevice                        // the device with the index cannot be used
	Lost                             // the driver refuses all further work of this process
)

func (r ProbeReason) String() string {
	switch r {
	case NotBuilt:
		return "not-built"
	case NoLibrary:
		return "no-library"
	case OldDriver:
		return "old-driver"
	case NoDriver:
		return "no-driver"
	case NoDevice:
		return "no-device"
	case BadDevice:
		return "unusable-device"
	case Lost:
		return "lost-driver"
	}
	return "unknown"
}

// MarshalText is String, for JSON.
func (r ProbeReason) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// ProbeError reports why there is no GPU to use. It is an ErrUnsupported.
type ProbeError struct {
	Reason ProbeReason
	Detail string
	Hint   string // one remedy for the user, or empty
}

func (e *ProbeError) Error() string { return e.Detail }

// Unwrap returns ErrUnsupported.
func (e *ProbeError) Unwrap() error { return ErrUnsupported }

// Error is a failed call of the driver.
type Error struct {
	Op   string // the operation as a verb phrase: "allocate 64 MiB"
	GPU  int    // index of the device
	Code int    // CUresult
	Name string // its name: "CUDA_ERROR_OUT_OF_MEMORY"
}

func (e *Error) Error() string {
	return fmt.Sprintf("%s on GPU %d: %s (%d)", e.Op, e.GPU, e.Name, e.Code)
}

// CUresults that need special handling (cuda.h).
const (
	codeOutOfMemory         = 2
	codeInvalidImage        = 200
	codeNoBinaryForGPU      = 209
	codeInvalidPTX          = 218
	codeNoJITCompiler       = 221
	codeUnsupportedPTX      = 222
	codeJITDisabled         = 223
	codeNotReady            = 600
	codeLaunchOutOfResource = 701
	codeNotSupported        = 801
	codeSystemNotReady      = 802
	codeCompatNotSupported  = 804
	codeMPSConnectionFailed = 805
	codeUnknown             = 999
)

// Unwrap returns ErrOutOfMemory or ErrUnsupported if the code means that, otherwise nil.
func (e *Error) Unwrap() error {
	switch e.Code {
	case codeOutOfMemory:
		return ErrOutOfMemory
	case codeInvalidImage, codeNoBinaryForGPU, codeInvalidPTX, codeNoJITCompiler, codeUnsupportedPTX, codeJITDisabled, codeNotSupported:
		return ErrUnsupported
	}
	return nil
}

// Hint returns one remedy for the user, or an empty string.
func (e *Error) Hint() string {
	switch e.Code {
	case codeOutOfMemory:
		return "take another GPU, or a smaller ring: --slots, --chunk-size"
	case codeInvalidImage, codeNoBinaryForGPU, codeInvalidPTX, codeUnsupportedPTX:
		return "a newer NVIDIA driver may know the kernels for this GPU"
	case codeNoJITCompiler:
		return "install libnvidia-ptxjitcompiler.so.1 of the driver's version; in a container, NVIDIA_DRIVER_CAPABILITIES must have compute"
	case codeJITDisabled:
		return "unset CUDA_DISABLE_PTX_JIT and CUDA_DISABLE_JIT"
	case codeLaunchOutOfResource:
		return "check `nvidia-smi` for other users of the GPU"
	case codeUnknown, codeNotReady:
		return "check `nvidia-smi` and `dmesg` for the health of the GPU and its driver"
	}
	return hintOfSystem(e.Code)
}

// hintOfSystem returns the remedy for a CUresult that concerns the whole
// machine, during initialization or later, or an empty string.
func hintOfSystem(code int) string {
	switch code {
	case codeSystemNotReady:
		return "on machines with NVSwitch, start nvidia-fabricmanager; for confidential computing, `nvidia-smi conf-compute -srs 1`"
	case codeCompatNotSupported:
		return "CUDA's forward-compatibility libcuda.so.1 (package cuda-compat) does not support this GPU: take it out of LD_LIBRARY_PATH, or update the kernel driver"
	case codeMPSConnectionFailed:
		return "the MPS server cannot be reached: start `nvidia-cuda-mps-control -d`, or unset CUDA_MPS_PIPE_DIRECTORY"
	}
	return ""
}

// WithClose joins the error of work on a GPU, which may be nil, with the error
// of closing the objects that the work used. If both are errors of the driver
// with the same code, it returns err alone: after a failure a context returns
// the same code from every later call.
func WithClose(err, closing error) error {
	var first, again *Error
	if errors.As(err, &first) && errors.As(closing, &again) && first.Code == again.Code {
		return err
	}
	return errors.Join(err, closing)
}
