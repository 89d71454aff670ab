package wire

import (
	"strings"
	"testing"
)

func TestMemoryTravels(t *testing.T) {
	for _, m := range []Memory{
		{GPU: -1, Rung: RungHost, Why: "no GPU"},
		{GPU: 0, Name: "NVIDIA H200", Rung: RungDMABuf, Path: "PIX", Flush: FlushNone},
		{GPU: 1023, Name: "x", Rung: RungStaged, Path: "SYS", Flush: FlushRead, Why: "dma-buf: no; peermem: no"},
	} {
		got, err := DecodeMemory(m.Encode())
		if err != nil || got != m {
			t.Errorf("%+v came as %+v, %v", m, got, err)
		}
	}
	long := Memory{GPU: 0, Why: strings.Repeat("x", 5000)}
	if b := long.Encode(); len(b) > MsgBytes/2 {
		t.Errorf("a message of %d bytes", len(b))
	}
}

// The peer's description of its memory is printed on a terminal.
func TestMemoryIsPrintable(t *testing.T) {
	m := Memory{Name: "\x1b[31mred", Why: "a\nb"}
	got, err := DecodeMemory(m.Encode())
	if err != nil || strings.ContainsAny(got.Name+got.Why, "\x1b\n") {
		t.Errorf("%q %q, %v", got.Name, got.Why, err)
	}
}
