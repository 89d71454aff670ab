//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gdrcp/gpu/gputest"
)

// variant builds a fake with further compiler flags, for the next Open.
func variant(t *testing.T, flags ...string) {
	t.Helper()
	library, err := gputest.Build(t.TempDir(), flags...)
	if err != nil {
		t.Fatal(err)
	}
	gputest.Set(t, library)
}

func TestProbeErrors(t *testing.T) {
	set := func(words ...string) func(*testing.T) {
		return func(t *testing.T) { gputest.Set(t, os.Getenv(fakeLibrary), words...) }
	}
	for _, tt := range []struct {
		name   string
		set    func(*testing.T)
		reason ProbeReason
		detail string
		hint   string
	}{
		{"no library", func(t *testing.T) { t.Setenv("GDRCP_LIBCUDA", filepath.Join(t.TempDir(), "libcuda.so.1")) }, NoLibrary, "libcuda.so.1", ""},
		{"no GPU", set("none"), NoDevice, "CUDA_ERROR_NO_DEVICE", ""},
		{"another kernel module", set("mismatch"), NoDriver, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", ""},
		{"no fabric manager", set("noinit=802"), NoDriver, "CUresult 802", "nvidia-fabricmanager"},
		{"a compatibility library", set("noinit=804"), NoDriver, "CUresult 804", "cuda-compat"},
		{"no MPS server", set("noinit=805"), NoDriver, "CUresult 805", "MPS"},
		{"another failure", set("noinit=999"), NoDriver, "CUDA_ERROR_UNKNOWN", "dmesg"},
		{"the toolkit's stub", set("stub"), NoDriver, "stand-in for linking", ""},
		{"an old driver", set("old"), OldDriver, "no cuDevicePrimaryCtxRelease_v2", ""},
		{"a driver without one function", set("old=cuMemHostRegister"), OldDriver, "no cuMemHostRegister_v2", ""},
		{"a driver before cuGetProcAddress without one", func(t *testing.T) {
			variant(t, "-DFAKE_PLAIN_SYMBOLS", "-DcuMemFree_v2=cuMemFree")
		}, OldDriver, "no cuMemFree_v2", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			tt.set(t)
			_, err := Open()
			var probe *ProbeError
			if !errors.As(err, &probe) || !errors.Is(err, ErrUnsupported) {
				t.Fatalf("%v is no ProbeError", err)
			}
			if probe.Reason != tt.reason || !strings.Contains(probe.Detail, tt.detail) || probe.Hint == "" || !strings.Contains(probe.Hint, tt.hint) {
				t.Errorf("reason %s, detail %q, hint %q; want %s with %q", probe.Reason, probe.Detail, probe.Hint, tt.reason, tt.detail)
			}
		})
	}
}

// TestOlderDrivers: functions are found in whichever of the three ways the
// driver supports.
func TestOlderDrivers(t *testing.T) {
	for name, flags := range map[string][]string{
		"the first cuGetProcAddress": {"-DcuGetProcAddress_v2=not_there"},
		"plain symbols":              {"-DFAKE_PLAIN_SYMBOLS"},
	} {
		t.Run(name, func(t *testing.T) {
			variant(t, flags...)
			d, err := Open()
			if err != nil {
				t.Fatal(err)
			}
			c, err := d.Use(context.Background(), 0)
			if err != nil {
				t.Fatal(err)
			}
			roundTrip(t, c, 1<<16)
			closes(t, "context", c)
			closes(t, "driver", d)
		})
	}
}

func TestDevices(t *testing.T) {
	d := openFake(t, "gpus=3", "memory=1024")
	d.sysfs = t.TempDir()
	dir := filepath.Join(d.sysfs, "bus/pci/devices/0000:2b:00.0")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "numa_node"), []byte("1\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	list := d.Devices()
	if len(list) != 3 {
		t.Fatalf("%d devices, want 3", len(list))
	}
	want := Device{
		Index: 1, Name: "Fake GPU 1", UUID: "GPU-00010203-0405-0607-0809-0a0b0c0d0e01", PCIAddress: "0000:2b:00.0", NUMANode: 1,
		MemoryBytes: 1 << 30, BAR1Bytes: 256 << 20, BAR1FreeBytes: 256 << 20, ComputeMajor: 9, DriverVersion: "12.4",
		DMABuf: true, GPUDirect: true, HostFlush: true, WritesOrdering: 100,
	}
	if list[1] != want {
		t.Errorf("got  %+v\nwant %+v", list[1], want)
	}
	if list[0].NUMANode != -1 {
		t.Errorf("a device that sysfs has not: node %d", list[0].NUMANode)
	}
	if v := d.Version(); v != "12.4" {
		t.Errorf("version %q", v)
	}
}

func TestDeviceModes(t *testing.T) {
	for words, check := range map[string]func(Device) bool{
		"nodmabuf":                           func(d Device) bool { return !d.DMABuf && d.GPUDirect },
		"peermem":                            func(d Device) bool { return !d.DMABuf && d.GPUDirect },
		"old=cuMemGetHandleForAddressRange":  func(d Device) bool { return !d.DMABuf },
		"noflush":                            func(d Device) bool { return !d.HostFlush },
		"old=cuFlushGPUDirectRDMAWrites":     func(d Device) bool { return !d.HostFlush },
		"cc=8.6":                             func(d Device) bool { return d.ComputeMajor == 8 && d.ComputeMinor == 6 && d.WritesOrdering == 0 },
		"c2c":                                func(d Device) bool { return d.C2C },
		"bar1full":                           func(d Device) bool { return d.BAR1FreeBytes == 0 && d.BAR1Bytes > 0 },
		"nonvml":                             func(d Device) bool { return d.BAR1Bytes == -1 && d.BAR1FreeBytes == -1 && d.Problem == "" },
		"prohibited":                         func(d Device) bool { return strings.Contains(d.Problem, "Prohibited") },
		"dmabuf,memory=2048,cc=10.0,strict ": func(d Device) bool { return d.MemoryBytes == 2<<30 && d.ComputeMajor == 10 },
	} {
		t.Run(words, func(t *testing.T) {
			if d := openFake(t, words).Devices()[0]; !check(d) {
				t.Errorf("%+v", d)
			}
		})
	}
}

// A MIG instance has its own UUID, if the driver reports it: older drivers
// report the GPU's.
func TestInstanceUUID(t *testing.T) {
	const whole = "GPU-00010203-0405-0607-0809-0a0b0c0d0e01"
	if d := openFake(t, "gpus=2", "mig").Devices()[1]; d.UUID != "MIG-99010203-0405-0607-0809-0a0b0c0d0e01" {
		t.Errorf("of an instance: %s", d.UUID)
	}
	if d := openFake(t, "gpus=2").Devices()[1]; d.UUID != whole {
		t.Errorf("of a GPU: %s", d.UUID)
	}
	for name, flags := range map[string][]string{
		"a driver before cuGetProcAddress": {"-DFAKE_PLAIN_SYMBOLS", "-DcuDeviceGetUuid_v2=not_there"},
		"plain symbols":                    {"-DFAKE_PLAIN_SYMBOLS"},
	} {
		variant(t, flags...)
		d, err := Open()
		if err != nil {
			t.Fatal(err)
		}
		if dev := d.Devices()[0]; !strings.HasPrefix(dev.UUID, "GPU-") || dev.Problem != "" {
			t.Errorf("%s: %+v", name, dev)
		}
		closes(t, "driver", d)
	}
}

func TestNoNVML(t *testing.T) {
	gputest.Set(t, os.Getenv(fakeLibrary))
	t.Setenv("GDRCP_LIBNVML", filepath.Join(t.TempDir(), "libnvidia-ml.so.1"))
	d, err := Open()
	if err != nil {
		t.Fatal(err)
	}
	defer closes(t, "driver", d)
	if dev := d.Devices()[0]; dev.BAR1Bytes != -1 || dev.Problem != "" {
		t.Errorf("%+v", dev)
	}
}

func TestUseRefused(t *testing.T) {
	refused := func(d *Driver, index int, detail string) {
		t.Helper()
		_, err := d.Use(context.Background(), index)
		var probe *ProbeError
		if !errors.As(err, &probe) || probe.Reason != BadDevice || !strings.Contains(probe.Detail, detail) {
			t.Errorf("use GPU %d: %v, want %q", index, err, detail)
		}
	}
	d := openFake(t, "gpus=2")
	refused(d, -1, "no GPU -1")
	refused(d, 2, "the driver shows 2")
	refused(openFake(t, "prohibited"), 0, "Prohibited")
}

func TestDriverClose(t *testing.T) {
	d := openFake(t)
	c, err := d.Use(context.Background(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("close with a context: %v", err)
	}
	closes(t, "context", c)
	closes(t, "driver", d)
	closes(t, "driver again", d)
	if _, err := d.Use(context.Background(), 0); !errors.Is(err, ErrClosed) {
		t.Errorf("use after close: %v", err)
	}
	if list := d.Devices(); list != nil {
		t.Errorf("devices after close: %v", list)
	}
}
