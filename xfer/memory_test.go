package xfer

import (
	"errors"
	"strings"
	"testing"

	"gdrcp/manifest"
)

func TestMemoryTravels(t *testing.T) {
	for _, m := range []Memory{
		{GPU: -1, Rung: RungHost, Why: "no GPU"},
		{GPU: 0, Name: "NVIDIA H200", Rung: RungDMABuf, Path: "PIX", Flush: FlushNone},
		{GPU: 1023, Name: "x", Rung: RungStaged, Path: "SYS", Flush: FlushRead, Why: "dma-buf: no; peermem: no"},
	} {
		got, err := decodeMemory(m.encode())
		if err != nil || got != m {
			t.Errorf("%+v came as %+v, %v", m, got, err)
		}
	}
	long := Memory{GPU: 0, Why: strings.Repeat("x", 5000)}
	if b := long.encode(); len(b) > msgBytes/2 {
		t.Errorf("a message of %d bytes", len(b))
	}
}

// What the peer says of its memory reaches a terminal.
func TestMemoryIsPrintable(t *testing.T) {
	m := Memory{Name: "\x1b[31mred", Why: "a\nb"}
	got, err := decodeMemory(m.encode())
	if err != nil || strings.ContainsAny(got.Name+got.Why, "\x1b\n") {
		t.Errorf("%q %q, %v", got.Name, got.Why, err)
	}
}

func TestPlacements(t *testing.T) {
	for _, tc := range []struct {
		o             Options
		local, remote gpuWish
		usage         bool
	}{
		{o: Options{}, local: gpuOff, remote: gpuOff},
		{o: Options{GPU: "off", RemoteGPU: "auto"}, local: gpuOff, remote: gpuAuto},
		{o: Options{GPU: "0", RemoteGPU: "7"}, local: gpuFirst, remote: gpuFirst + 7},
		{o: Options{GPU: "GPU-12ab", RemoteGPU: "3b:00.0"}, local: gpuNamed, remote: gpuNamed},
		{o: Options{GPU: "-1"}, usage: true},
		{o: Options{GPU: "GPU-x"}, usage: true},
		{o: Options{GPU: "1024"}, usage: true},
		{o: Options{RemoteGPU: "all"}, usage: true},
		{o: Options{GPUFlush: "never"}, usage: true},
		{o: Options{Require: "gpudirect"}, usage: true},
		{o: Options{Require: "gpudirect", GPU: "0", Transport: "tcp"}, usage: true},
		{o: Options{Require: "gpudirect", GPU: "0"}, local: gpuFirst},
	} {
		local, remote, err := tc.o.placements()
		if errors.Is(err, ErrUsage) != tc.usage || (err == nil && (local.gpu != tc.local || remote.gpu != tc.remote)) {
			t.Errorf("%q, %q, %q: %v, %v, %v", tc.o.GPU, tc.o.RemoteGPU, tc.o.GPUFlush, local, remote, err)
		}
	}
}

// A client's wish reaches its server, and one that cannot be is refused there.
func TestPlacementTravels(t *testing.T) {
	o := Options{RemoteGPU: "3", GPU: "0", Require: "gpudirect", GPUFlush: "always"}
	o.complete()
	sent, err := o.hello(modePush)
	if err != nil {
		t.Fatal(err)
	}
	if sent.hash != manifest.BLAKE3 {
		t.Errorf("the hash is %s where a GPU is to digest", sent.hash)
	}
	h, err := decodeHello(sent.encode())
	if err != nil {
		t.Fatal(err)
	}
	if p, want := h.place(), (placement{gpu: gpuFirst + 3, flushAlways: true, direct: true}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	o.RemoteGPU = "MIG-12AB"
	if sent, err = o.hello(modePush); err != nil {
		t.Fatal(err)
	}
	if h, err = decodeHello(sent.encode()); err != nil || h.place().wanted() != "MIG-12AB" || !sent.isAnsweredBy(&h) {
		t.Errorf("%+v, %v", h.place(), err)
	}
	other := h
	other.gpuName = "MIG-12AC"
	if sent.isAnsweredBy(&other) {
		t.Error("a welcome with another GPU is taken")
	}
	h.gpuName = ""
	if _, err := decodeHello(h.encode()); !errors.Is(err, ErrProtocol) {
		t.Errorf("GPU %d: %v", MaxGPUs, err)
	}
}
