//go:build linux && cgo

package cli

import (
	"regexp"
	"sync"
	"testing"

	"gdrcp/gpu"
	"gdrcp/gpu/gputest"
	"gdrcp/rdma"
)

// fakeCUDA builds the fake driver once for everything that a test opens.
func fakeCUDA(t *testing.T) {
	t.Helper()
	library, err := gputest.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv(gputest.Library, library)
}

// gpusOf runs `gdrcp devices` on a machine with one RDMA device and the fake's
// GPUs.
func gpusOf(t *testing.T, words []string, args ...string) result {
	t.Helper()
	gputest.Use(t, words...)
	p, out, errs := newProgram()
	p.verbs = &deviceList{devices: []rdma.Device{{Name: "mlx5_0", Transport: rdma.InfiniBand, NUMANode: -1}}}
	p.gpus = sync.OnceValues(gpu.Open)
	code := p.run(t.Context(), append([]string{"gdrcp", "devices"}, args...))
	return result{code, out.String(), errs.String()}
}

func TestDevicesShowGPUs(t *testing.T) {
	fakeCUDA(t)
	r := gpusOf(t, []string{"gpus=2", "cc=9.0"}).want(t, exitOK)
	for _, want := range []string{
		`(?m)^GPU +NAME +MEMORY +BAR1 FREE +CC +DRIVER +NUMA +PCI +UUID +GPUDIRECT +DMA-BUF +mlx5_0 +PROBLEM$`,
		`(?m)^0 .* GiB .* 9\.0 .* 0000:1b:00\.0 +GPU-00010203-0405-0607-0809-0a0b0c0d0e00 +yes +yes +SYS +-$`,
		`(?m)^1 `,
		`(?m)^--gpu auto: mlx5_0 GPU 0 \(SYS\)$`,
	} {
		if !regexp.MustCompile(want).MatchString(r.out) {
			t.Errorf("no match for /%s/ in\n%s", want, r.out)
		}
	}
	events := gpusOf(t, []string{"gpus=2"}, "--json").want(t, exitOK).events(t)
	if len(events) != 3 || events[1]["event"] != "gpu" || events[2]["index"] != 1.0 || events[1]["nearest"] != "mlx5_0" || events[1]["dma_buf"] != true {
		t.Fatalf("events %v", events)
	}
	path := events[1]["paths"].([]any)[0].(map[string]any)
	if path["device"] != "mlx5_0" || path["path"] != "SYS" {
		t.Errorf("path %v", path)
	}
}

func TestDevicesSayWhyNoGPU(t *testing.T) {
	fakeCUDA(t)
	r := gpusOf(t, []string{"none"}).want(t, exitOK)
	if !regexp.MustCompile(`(?m)^no GPU: .+CUDA_ERROR_NO_DEVICE`).MatchString(r.out) {
		t.Errorf("it wrote\n%s", r.out)
	}
	e := gpusOf(t, []string{"none"}, "--json").want(t, exitOK).event(t, "no_gpu")
	if e["reason"] != gpu.NoDevice.String() || e["text"] == "" {
		t.Errorf("event %v", e)
	}
}
