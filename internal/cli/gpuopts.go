package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"gdrcp/gpu"
	"gdrcp/internal/printable"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// gpuDriver is the driver of the program's GPUs. It keeps their contexts and kernels
// between sessions.
type gpuDriver struct {
	mu     sync.Mutex
	driver *gpu.Driver // nil until a GPU is needed
}

// open opens the driver on first use, because that takes time, and keeps it. If that
// fails, the next call retries: a server may have been started before the driver.
func (g *gpuDriver) open() (*gpu.Driver, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver != nil {
		return g.driver, nil
	}
	d, err := gpu.Open()
	if err == nil {
		g.driver = d
	}
	return d, err
}

// close releases the GPUs. Nothing may use them afterwards.
func (g *gpuDriver) close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.driver == nil {
		return nil
	}
	return g.driver.Close()
}

// gpuLoss handles the loss of a server's GPUs. The server continues with host memory
// or, with --exit-on-gpu-failure, ends as soon as no session runs.
type gpuLoss struct {
	*serveRun
	end context.CancelCauseFunc

	mu       sync.Mutex
	sessions int
	lost     error // ends the program; nil before the loss, and always without --exit-on-gpu-failure
}

// guard returns the program's GPUs. It reports their loss once.
func (l *gpuLoss) guard() xfer.GPUs {
	if l.gpus == nil {
		return nil
	}
	var once sync.Once
	return func() (*gpu.Driver, error) {
		driver, err := l.gpus()
		if err == nil {
			once.Do(func() { driver.OnLost(l.noteLoss) })
		}
		return driver, err
	}
}

func (l *gpuLoss) noteLoss(why error) {
	until := "until the server is started again"
	if l.exitOnGPUFailure {
		until = "until no session runs, and then the server ends"
	}
	l.console.line("gdrcp: %s; clients get host memory %s", lineOf(why), until)
	if l.exitOnGPUFailure {
		l.update(func() { l.lost = &lostGPU{&hintedError{errors.New(lineOf(why)), hintOf(why)}} })
	}
}

// load updates the needs of the running sessions.
func (l *gpuLoss) load(need xfer.Load) {
	boundHeap(need)
	l.update(func() { l.sessions = need.Sessions })
}

func (l *gpuLoss) update(by func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	by()
	if l.lost != nil && l.sessions == 0 {
		l.end(l.lost)
	}
}

// lostGPU ends a server with exit code 1. The GPU worked before, so a restart may help.
type lostGPU struct{ error }

func (l *lostGPU) Unwrap() error { return l.error }

// gpuFlags returns the options about slots in GPU memory.
func gpuFlags(o *xfer.Options) []cli.Flag {
	return about(topicGPU,
		checkedFlag("gpu", "`GPU|auto|off` put this end's slots in the memory of a GPU: the one with that index, UUID or PCI address (see gdrcp devices), "+
			"or the one nearest to the RDMA device. The GPU verifies the data there, with blake3 unless --hash says otherwise (off)", gpuName(&o.GPU)),
		checkedFlag("remote-gpu", "`GPU|auto|off` the same for the other end (off)", gpuName(&o.RemoteGPU)),
		checkedFlag("gpu-flush", "`auto|always` flush what arrived in GPU memory where the GPU needs it, or always (auto)",
			oneOf(&o.GPUFlush, "auto", "always")),
	)
}

// gpuName is the value auto, off, or a name that gpu.Find accepts.
func gpuName(to *string) *checkedValue {
	return &checkedValue{set: func(s string) error {
		if xfer.CheckGPU(s) != nil {
			return fmt.Errorf("not auto, off, or the index, UUID (GPU-... or MIG-...) or PCI address of a GPU")
		}
		*to = s
		return nil
	}}
}

// memoryText says in which memory an end has its slots, and why the memory is not better.
func memoryText(m *xfer.Memory, remote bool) string {
	end := "here"
	if remote {
		end = "at the other end"
	}
	text := fmt.Sprintf("slots %s in %s", end, m)
	if m.Name != "" {
		text += " (" + printable.Text(m.Name)
		if m.Path != "" {
			text += ", " + m.Path
		}
		text += ")"
	}
	if m.Flush == xfer.FlushRead {
		text += ", flushed by " + string(m.Flush)
	}
	if m.Why != "" {
		text += ": " + printable.Text(m.Why)
	}
	return text
}

// endsText says in which memory the slots were, if an end had its slots in a GPU.
func endsText(s *xfer.Summary) string {
	if s.Local.GPU < 0 && s.Remote.GPU < 0 {
		return ""
	}
	return fmt.Sprintf(", slots here in %s, there in %s", placeOf(s.Local), placeOf(s.Remote))
}

// placeOf names an end's memory and says why it is not better.
func placeOf(m xfer.Memory) string {
	if m.Why == "" {
		return m.String()
	}
	return fmt.Sprintf("%s (%s)", m, printable.Text(m.Why))
}

// memoryEvent reports the memory in which an end has its slots.
type memoryEvent struct {
	Event string `json:"event"`
	End   string `json:"end"` // "local" or "remote"
	xfer.Memory
}

func memoryEventOf(m *xfer.Memory, remote bool) memoryEvent {
	return memoryEvent{"memory", endText(endOf(remote)), *m}
}
