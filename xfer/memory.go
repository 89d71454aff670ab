package xfer

import (
	"errors"
	"fmt"
	"strconv"

	"gdrcp/gpu"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/rdma"
)

// GPUs opens the GPU driver: cheap after the first time, with the same result.
// Nil stands for a program that lends no GPU memory.
type GPUs func() (*gpu.Driver, error)

// placement is where an end is asked to have its slots.
type placement struct {
	gpu gpuWish
	// gpuName is what gpu.Find takes, where gpu is gpuNamed, else empty.
	gpuName string
	// flushAlways: after every batch, whatever the GPU's rules say.
	flushAlways bool
	// direct: the rail's device must reach the GPU's memory by itself.
	direct bool
}

// gpuWish is which GPU is wanted, also on the wire: none, any, from gpuFirst on
// the one of that index, or the one of a name that stands beside.
type gpuWish uint64

const (
	gpuOff gpuWish = iota
	gpuAuto
	gpuFirst
	gpuNamed = gpuFirst + MaxGPUs
)

// MaxGPUs bounds the index of a GPU, also one that a peer names.
const MaxGPUs = 1024

// parseGPU reads the word of --gpu: "off" (or ""), "auto", an index or another
// name of a GPU. The rest of the placement is left.
func parseGPU(word string) (p placement, err error) {
	switch word {
	case "", "off":
		return p, nil
	case "auto":
		p.gpu = gpuAuto
		return p, nil
	}
	n, err := strconv.Atoi(word)
	if err == nil && n >= 0 && n < MaxGPUs {
		p.gpu = gpuFirst + gpuWish(n)
		return p, nil
	}
	if err == nil || gpu.CheckName(word) != nil {
		return p, fmt.Errorf("%w: GPU %q; known are off, auto, and an index, UUID or PCI address as `gdrcp devices` shows it", ErrUsage, word)
	}
	return placement{gpu: gpuNamed, gpuName: word}, nil
}

// isOne reports whether one certain GPU is wanted.
func (p placement) isOne() bool { return p.gpu >= gpuFirst }

// wanted is the name of the one GPU that will do, as gpu.Find takes it.
func (p placement) wanted() string {
	if p.gpu == gpuNamed {
		return p.gpuName
	}
	return strconv.Itoa(int(p.gpu - gpuFirst))
}

// CheckGPU refuses a word that Options.GPU and RemoteGPU do not take: ErrUsage.
func CheckGPU(word string) error {
	_, err := parseGPU(word)
	return err
}

// place reads what a client asks of its server.
func (h *hello) place() placement {
	return placement{gpu: gpuWish(h.gpu), gpuName: h.gpuName, flushAlways: h.flags&flagFlush != 0, direct: h.flags&flagDirect != 0}
}

// checkGPU refuses a wish that names no GPU, or two.
func (h *hello) checkGPU() error {
	if named := gpuWish(h.gpu) == gpuNamed; named != (h.gpuName != "") || named && gpu.CheckName(h.gpuName) != nil {
		return fmt.Errorf("%w: GPU %d of a name of %d bytes", ErrProtocol, h.gpu, len(h.gpuName))
	}
	return nil
}

// Rung is a way for bytes to get between the wire and a slot.
type Rung string

// The rungs of the ladder, best first, and host memory beside it.
const (
	// RungDMABuf: the device reads and writes GPU memory, which it was given
	// as a dma-buf.
	RungDMABuf Rung = "dma-buf"
	// RungPeermem: it does, and was given it by address (nvidia-peermem).
	RungPeermem Rung = "peermem"
	// RungStaged: chunks pass through pinned host memory.
	RungStaged Rung = "staged"
	// RungHost: the slots are in host memory.
	RungHost Rung = "host"
)

// Direct reports whether the device reaches the GPU's memory by itself.
func (r Rung) Direct() bool { return r == RungDMABuf || r == RungPeermem }

// Flush is how what a device wrote becomes visible to the GPU's readers.
type Flush string

// The ways.
const (
	// FlushNone: none is needed, by the GPU's kind or because nothing arrives.
	FlushNone Flush = "none"
	// FlushRead: a read of the last address through the same device.
	FlushRead Flush = "loopback read"
)

// Memory is where one end has its slots.
type Memory struct {
	// GPU is the index of the GPU, or -1 for host memory.
	GPU int `json:"gpu"`
	// Name is the GPU's.
	Name string `json:"gpu_name,omitempty"`
	Rung Rung   `json:"rung"`
	// Path is how far the GPU is from the rail's device: PIX, PXB, PHB or SYS.
	Path  string `json:"path,omitempty"`
	Flush Flush  `json:"flush,omitempty"`
	// Why says what was wrong with each better rung, and where this one was held
	// against staging both speeds; or is empty.
	Why string `json:"why,omitempty"`
}

func hostMemory(why string) Memory { return Memory{GPU: -1, Rung: RungHost, Why: why} }

// String is "host memory", or "GPU 0 by dma-buf".
func (m Memory) String() string {
	switch {
	case m.GPU < 0:
		return "host memory"
	case m.Rung == RungStaged:
		return fmt.Sprintf("GPU %d, staged", m.GPU)
	}
	return fmt.Sprintf("GPU %d by %s", m.GPU, m.Rung)
}

// Tags of msgMemory.
const (
	tagMemGPU = iota + 1
	tagMemName
	tagMemRung
	tagMemPath
	tagMemFlush
	tagMemWhy
)

func (m *Memory) encode() []byte {
	var w tlvWriter
	w.uint(tagMemGPU, uint64(m.GPU+1))
	for _, f := range []struct {
		tag  byte
		text string
	}{{tagMemName, m.Name}, {tagMemRung, string(m.Rung)}, {tagMemPath, m.Path}, {tagMemFlush, string(m.Flush)}, {tagMemWhy, m.Why}} {
		if f.text != "" {
			w.str(f.tag, cutText(f.text))
		}
	}
	return w.b
}

// cutText bounds a text for a person in a message with others.
func cutText(s string) string {
	const most = 1000
	return s[:min(len(s), most)]
}

// decodeMemory reads what the peer says of its memory: words for a person,
// nothing that this end acts on.
func decodeMemory(b []byte) (m Memory, err error) {
	r := tlvReader{b}
	m.GPU = -1
	for {
		tag, v, ok, err := r.next()
		if err != nil || !ok {
			return m, err
		}
		text := printable.Text(cutText(string(v)))
		switch tag {
		case tagMemGPU:
			n, err := tlvUint(tag, v)
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

// touched says why the processor has to touch every chunk, so that none goes
// straight to or from a GPU; nil if it has not.
func (p *params) touched() error {
	switch {
	case p.encrypted():
		return errors.New("chunks are encrypted by the processor")
	case p.codec != CompressOff:
		return errors.New("chunks are compressed by the processor")
	case p.hash != manifest.BLAKE3 && p.hash != 0:
		return fmt.Errorf("the GPU digests by blake3 only, and %s is asked for", p.hash)
	}
	return nil
}

// errNotDirect is the refusal where GPUDirect is required and there is none.
func errNotDirect(m *Memory) error {
	return fmt.Errorf("gpudirect is required: %w: %s: %s", rdma.ErrUnsupported, m, m.Why)
}

// tell reports where an end has its slots.
func (s *session) tell(m Memory, remote bool) {
	if s.report != nil {
		s.report(Event{Kind: EventMemory, Memory: &m, Remote: remote})
	}
}

// heardMemory takes the peer's word of where it has its slots.
func (s *session) heardMemory(body []byte) error {
	m, err := decodeMemory(body)
	if err == nil && s.client && !s.asksGPU {
		err = fmt.Errorf("%w: word of GPU memory that was not asked for", ErrProtocol)
	}
	if err != nil {
		return err
	}
	if !s.theirs.CompareAndSwap(nil, &m) {
		return fmt.Errorf("%w: a second word of where its slots are", ErrProtocol)
	}
	s.tell(m, true)
	return nil
}

// memories are where the two ends had their slots, as far as they told.
func (s *session) memories() (local, remote Memory) {
	remote = hostMemory("")
	if m := s.theirs.Load(); m != nil {
		remote = *m
	}
	return s.memory, remote
}

// placements reads where the two ends are to have their slots.
func (o *Options) placements() (local, remote placement, err error) {
	if local, err = parseGPU(o.GPU); err != nil {
		return local, remote, err
	}
	if remote, err = parseGPU(o.RemoteGPU); err != nil {
		return local, remote, err
	}
	switch o.GPUFlush {
	case "", "auto":
	case "always":
		local.flushAlways = true
	default:
		return local, remote, fmt.Errorf("%w: flush %q; known are auto, always", ErrUsage, o.GPUFlush)
	}
	local.direct = o.Require == "gpudirect"
	remote.flushAlways, remote.direct = local.flushAlways, local.direct
	if local.direct && local.gpu == gpuOff && remote.gpu == gpuOff {
		return local, remote, fmt.Errorf("%w: gpudirect is required, and no end is to use a GPU (--gpu, --remote-gpu)", ErrUsage)
	}
	if local.direct && o.Transport == "tcp" {
		return local, remote, fmt.Errorf("%w: gpudirect is required and tcp was asked for", ErrUsage)
	}
	return local, remote, nil
}

// needsVerbs reports whether TCP will not do.
func (o *Options) needsVerbs() bool { return o.Require == "verbs" || o.Require == "gpudirect" }
