package xfer

import (
	"errors"
	"testing"

	"gdrcp/manifest"
	"gdrcp/xfer/internal/ring"
	"gdrcp/xfer/internal/wire"
)

func TestPlacements(t *testing.T) {
	for _, tc := range []struct {
		o             Options
		local, remote wire.GPUWish
		usage         bool
	}{
		{o: Options{}, local: wire.GPUOff, remote: wire.GPUOff},
		{o: Options{GPU: "off", RemoteGPU: "auto"}, local: wire.GPUOff, remote: wire.GPUAuto},
		{o: Options{GPU: "0", RemoteGPU: "7"}, local: wire.GPUFirst, remote: wire.GPUFirst + 7},
		{o: Options{GPU: "GPU-12ab", RemoteGPU: "3b:00.0"}, local: wire.GPUNamed, remote: wire.GPUNamed},
		{o: Options{GPU: "-1"}, usage: true},
		{o: Options{GPU: "GPU-x"}, usage: true},
		{o: Options{GPU: "1024"}, usage: true},
		{o: Options{RemoteGPU: "all"}, usage: true},
		{o: Options{GPUFlush: "never"}, usage: true},
		{o: Options{Require: "gpudirect"}, usage: true},
		{o: Options{Require: "gpudirect", GPU: "0", Transport: "tcp"}, usage: true},
		{o: Options{Require: "gpudirect", GPU: "0"}, local: wire.GPUFirst},
	} {
		local, remote, err := tc.o.placements()
		if errors.Is(err, ErrUsage) != tc.usage || (err == nil && (local.GPU != tc.local || remote.GPU != tc.remote)) {
			t.Errorf("%q, %q, %q: %v, %v, %v", tc.o.GPU, tc.o.RemoteGPU, tc.o.GPUFlush, local, remote, err)
		}
	}
}

// A client's request reaches its server, and an impossible one is refused there.
func TestPlacementTravels(t *testing.T) {
	o := Options{RemoteGPU: "3", GPU: "0", Require: "gpudirect", GPUFlush: "always"}
	o.complete()
	sent, err := o.hello(wire.ModePush)
	if err != nil {
		t.Fatal(err)
	}
	if sent.Terms.Hash != manifest.BLAKE3 {
		t.Errorf("the hash is %s where a GPU is to digest", sent.Terms.Hash)
	}
	h, err := wire.DecodeHello(sent.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if p, want := ring.PlacementOf(&h), (ring.Placement{GPU: wire.GPUFirst + 3, FlushAlways: true, Direct: true}); p != want {
		t.Errorf("%+v, want %+v", p, want)
	}
	o.RemoteGPU = "MIG-12AB"
	if sent, err = o.hello(wire.ModePush); err != nil {
		t.Fatal(err)
	}
	if h, err = wire.DecodeHello(sent.Encode()); err != nil || ring.PlacementOf(&h).Wanted() != "MIG-12AB" || !sent.IsAnsweredBy(&h) {
		t.Errorf("%+v, %v", ring.PlacementOf(&h), err)
	}
	other := h
	other.GPUName = "MIG-12AC"
	if sent.IsAnsweredBy(&other) {
		t.Error("a welcome with another GPU is taken")
	}
	h.GPUName = ""
	if _, err := wire.DecodeHello(h.Encode()); !errors.Is(err, ErrProtocol) {
		t.Errorf("GPU %d: %v", MaxGPUs, err)
	}
}
