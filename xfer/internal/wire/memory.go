package wire

import (
	"fmt"

	"gdrcp/internal/printable"
)

// GPUWish is the requested GPU, also on the wire: none, any, a GPU by index (from GPUFirst
// on), or a GPU by name. The name is in a separate field.
type GPUWish uint64

// The wishes. A value from GPUFirst to below GPUNamed is the index of a GPU plus GPUFirst.
const (
	GPUOff   GPUWish = 0 // host memory
	GPUAuto  GPUWish = 1 // the GPU nearest to the device, or host memory
	GPUFirst GPUWish = 2
	GPUNamed GPUWish = GPUFirst + MaxGPUs // the GPU with that name
)

// MaxGPUs bounds the index of a GPU, including one from a peer.
const MaxGPUs = 1024

// Rung is a memory path: the way in which bytes get between the wire and a slot.
type Rung string

// The memory paths, best first, and host memory.
const (
	// RungDMABuf means that the device accesses GPU memory directly, which is registered
	// as a dma-buf.
	RungDMABuf Rung = "dma-buf"
	// RungPeermem means the same, but the memory is registered by its address
	// (nvidia-peermem).
	RungPeermem Rung = "peermem"
	// RungStaged means that chunks are copied through pinned host memory.
	RungStaged Rung = "staged"
	// RungHost means that the slots are in host memory.
	RungHost Rung = "host"
)

// Direct reports whether the device accesses the GPU's memory directly.
func (r Rung) Direct() bool { return r == RungDMABuf || r == RungPeermem }

// Flush is how a device's writes become visible to the GPU's readers.
type Flush string

// The methods of flushing.
const (
	// FlushNone means that no flush is needed, because of the GPU's type or because
	// nothing is received.
	FlushNone Flush = "none"
	// FlushRead is a read of the last address through the same device.
	FlushRead Flush = "loopback read"
)

// Memory describes the location of one end's slots.
type Memory struct {
	// GPU is the index of the GPU, or -1 for host memory.
	GPU int `json:"gpu"`
	// Name is the name of the GPU.
	Name string `json:"gpu_name,omitempty"`
	Rung Rung   `json:"rung"`
	// Path is the distance of the GPU from the rail's device: PIX, PXB, PHB or SYS.
	Path  string `json:"path,omitempty"`
	Flush Flush  `json:"flush,omitempty"`
	// Why explains why each better memory path is not used. It may be empty.
	Why string `json:"why,omitempty"`
}

// String returns for example "host memory", or "GPU 0 by dma-buf".
func (m Memory) String() string {
	switch {
	case m.GPU < 0:
		return "host memory"
	case m.Rung == RungStaged:
		return fmt.Sprintf("GPU %d, staged", m.GPU)
	}
	return fmt.Sprintf("GPU %d by %s", m.GPU, m.Rung)
}

// Encode returns the body of MsgMemory.
func (m *Memory) Encode() []byte {
	var w Writer
	w.Uint(tagMemGPU, uint64(m.GPU+1))
	for _, f := range []struct {
		tag  byte
		text string
	}{{tagMemName, m.Name}, {tagMemRung, string(m.Rung)}, {tagMemPath, m.Path}, {tagMemFlush, string(m.Flush)}, {tagMemWhy, m.Why}} {
		if f.text != "" {
			w.Str(f.tag, cutText(f.text))
		}
	}
	return w.Buf
}

// HostMemory is the Memory of an end whose slots are in host memory, with the reason.
func HostMemory(why string) Memory { return Memory{GPU: -1, Rung: RungHost, Why: why} }

// The tags of MsgMemory.
const (
	tagMemGPU   = 1
	tagMemName  = 2
	tagMemRung  = 3
	tagMemPath  = 4
	tagMemFlush = 5
	tagMemWhy   = 6
)

// cutText truncates a text for people in a message that has others too.
func cutText(s string) string {
	const most = 1000
	return s[:min(len(s), most)]
}

// DecodeMemory decodes the peer's description of its memory. It is only displayed: this
// end does not act on it.
func DecodeMemory(b []byte) (m Memory, err error) {
	r := Reader{b}
	m.GPU = -1
	for {
		tag, v, ok, err := r.Next()
		if err != nil || !ok {
			return m, err
		}
		text := printable.Text(cutText(string(v)))
		switch tag {
		case tagMemGPU:
			n, err := DecodeUint(tag, v)
			if err != nil || n > MaxGPUs {
				return m, fmt.Errorf("%w: GPU %d", ErrProtocol, n)
			}
			m.GPU = int(n) - 1
		case tagMemName:
			m.Name = text
		case tagMemRung:
			m.Rung = Rung(text)
		case tagMemPath:
			m.Path = text
		case tagMemFlush:
			m.Flush = Flush(text)
		case tagMemWhy:
			m.Why = text
		default:
			if err := unknownField(tag); err != nil {
				return m, err
			}
		}
	}
}
