package gpu

import (
	"errors"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	devices := []Device{
		{Index: 0, PCIAddress: "0000:1b:00.0", UUID: "GPU-11112222-3333-4444-5555-666677778888"},
		{Index: 1, PCIAddress: "0000:3b:00.0", UUID: "GPU-1111aaaa-3333-4444-5555-666677778888"},
		{Index: 2, PCIAddress: "0001:3b:00.0", UUID: "MIG-99990000-3333-4444-5555-666677778888"},
		{Index: 3, PCIAddress: "0001:3b:00.0", UUID: "MIG-99991111-3333-4444-5555-666677778888"},
	}
	for name, want := range map[string]int{
		"0": 0, "3": 3, "00": 0,
		"GPU-11112222-3333-4444-5555-666677778888": 0,
		"GPU-1111a":        1,
		"gpu-1111AAAA":     1,
		"MIG-99990":        2,
		"mig-99991111-33":  3,
		"0000:1b:00.0":     0,
		"00000000:3B:00.0": 1, // nvidia-smi's spelling
		"1b:00.0":          0,
		"0:3b:0":           1,
		"3b:00":            1,
	} {
		if d, err := Find(devices, name); err != nil || d.Index != want {
			t.Errorf("%s: GPU %d, %v, want GPU %d", name, d.Index, err, want)
		}
	}
	for name, want := range map[string]string{
		"4":            "there is no GPU 4, only 0 (0000:1b:00.0, GPU-11112222-3333-4444-5555-666677778888), 1 (",
		"GPU-2":        "there is no GPU GPU-2, only 0 (",
		"MIG-1111":     "there is no GPU MIG-1111",
		"3b:00.1":      "there is no GPU 3b:00.1",
		"0002:3b:00.0": "there is no GPU 0002:3b:00.0",
		"GPU-1111":     "GPU-1111 are several GPUs: 0 (0000:1b:00.0, GPU-11112222-3333-4444-5555-666677778888), 1 (",
		"0001:3b:00.0": "0001:3b:00.0 are several GPUs: 2 (0001:3b:00.0, MIG-99990000",
	} {
		_, err := Find(devices, name)
		var probe *ProbeError
		if !errors.As(err, &probe) || probe.Reason != BadDevice || !strings.Contains(probe.Detail, want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	many := make([]Device, 1000)
	if _, err := Find(many, "1"); err == nil || len(err.Error()) > 200 {
		t.Errorf("of a thousand: %v", err)
	}
}

func TestCheckName(t *testing.T) {
	for _, name := range []string{
		"", "-1", "all", "GPU-", "GPU", "gpu0", "MIG-GPU-1", "GPU-zz", "GPU-1\n", "3b", "3b:00.8", ":3b:00.0", "3b:00.0 ", "100000000:3b:00.0",
		"0x1", "1e3", "+1", "GPU-" + strings.Repeat("1", 37), strings.Repeat("1", 41), "99999999999",
	} {
		if CheckName(name) == nil {
			t.Errorf("%q is taken for a name", name)
		}
		if _, err := Find([]Device{{}}, name); !errors.Is(err, ErrUnsupported) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if CheckName("GPU-"+strings.Repeat("1", 36)) != nil {
		t.Error("a whole UUID is refused")
	}
}
