//go:build linux && cgo

package gpu

import (
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// If there is machine code for the GPU, it is loaded and the driver compiles
// nothing: here it has no compiler. Otherwise, and if the driver refuses the
// machine code, the PTX is loaded.
func TestKernelsFitTheGPU(t *testing.T) {
	for _, tc := range []struct {
		words []string
		want  string // what is loaded, or the error
	}{
		{[]string{"cc=7.0", "nojit"}, "sm_70"},
		{[]string{"cc=7.5", "nojit"}, "sm_75"},
		{[]string{"cc=8.0", "nojit"}, "sm_80"},
		{[]string{"cc=8.6", "nojit"}, "sm_80"},
		{[]string{"cc=8.9", "nojit"}, "sm_80"},
		{[]string{"cc=9.0", "nojit"}, "sm_90"},
		{[]string{"cc=9.7", "nojit"}, "sm_90"}, // later than any that we have
		{[]string{"cc=10.0"}, "PTX"},
		{[]string{"cc=12.0"}, "PTX"},
		{[]string{"cc=12.0", "nojit"}, "CUDA_ERROR_JIT_COMPILER_NOT_FOUND"},
		// Machine code for Tegra is not binary compatible with others.
		{[]string{"cc=7.2"}, "PTX"},
		{[]string{"cc=8.7"}, "PTX"},
		{[]string{"cc=9.0", "nocubin"}, "PTX"},
		{[]string{"cc=9.0", "nocubin=200"}, "PTX"},
		{[]string{"cc=9.0", "nocubin=218"}, "PTX"},
		{[]string{"cc=9.0", "nocubin=999"}, "PTX"},
		{[]string{"cc=9.0", "nocubin=2"}, "CUDA_ERROR_OUT_OF_MEMORY"},
		{[]string{"cc=9.0", "nocubin=719"}, "CUDA_ERROR_LAUNCH_FAILED"}, // after which nothing works
		{[]string{"cc=9.0", "nocubin", "nojit=222"}, "CUDA_ERROR_UNSUPPORTED_PTX_VERSION"},
	} {
		t.Run(strings.Join(tc.words, ","), func(t *testing.T) {
			c := useFake(t, tc.words...)
			h, err := c.NewHasher(3, 1<<20)
			var refused *Error
			if errors.As(err, &refused) {
				if refused.Name != tc.want {
					t.Errorf("%v, want %s", err, tc.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			closes(t, "hasher", h)
			if h := newHashBench(t, c, 3, 1<<20); h.hasher.kernels.form != tc.want {
				t.Errorf("loaded %s, want %s", h.hasher.kernels.form, tc.want)
			} else {
				data := noise(1 << 20)
				h.compare(data, []HashJob{{Memory: h.load(data), Len: len(data)}})
			}
		})
	}
}

// cubinNames lists the cubins.
func cubinNames(t *testing.T) []string {
	t.Helper()
	list, err := cubins.ReadDir("cubin")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, entry := range list {
		names = append(names, entry.Name())
	}
	return names
}

// TestCubins: the machine code, which cannot be run here, is for the GPU in its
// name, has the kernels, and keeps within the registers and memory that the
// arithmetic in blake3.cu assumes.
func TestCubins(t *testing.T) {
	for _, name := range cubinNames(t) {
		image, err := cubins.ReadFile("cubin/" + name)
		if err != nil {
			t.Fatal(err)
		}
		flags := binary.LittleEndian.Uint32(image[48:]) // not available from debug/elf
		image[20] = byte(elf.EV_CURRENT)                // for debug/elf: NVIDIA has its own versions
		f, err := elf.NewFile(bytes.NewReader(image))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		// 190 is EM_CUDA, for which debug/elf has no name.
		if f.Machine != 190 || fmt.Sprintf("sm_%d.cubin", flags&0xff) != name {
			t.Errorf("%s is for machine %d, flags %#x", name, f.Machine, flags)
		}
		for _, kernel := range []string{"gdr_blake3_tiles", "gdr_blake3_join"} {
			if f.Section(".text."+kernel) == nil {
				t.Errorf("%s has no %s", name, kernel)
			}
		}
		for _, s := range f.Sections {
			if strings.HasPrefix(s.Name, ".nv.local.") {
				t.Errorf("%s: a kernel takes local memory (%s), as for what it spills", name, s.Name)
			}
		}
		info := f.Section(".nv.info")
		if info == nil {
			t.Fatalf("%s tells no attributes", name)
		}
		const registerCount, frameSize = 0x2f, 0x11
		of := attributes(t, name, info)
		// A multiprocessor's 65536 registers must suffice for 8 blocks of 128 threads.
		if n := of[registerCount]; len(n) != 2 || slices.Min(n) == 0 || slices.Max(n) > 64 {
			t.Errorf("%s: the kernels take %d registers", name, n)
		}
		// Spilled registers would be there.
		if n := of[frameSize]; len(n) != 2 || slices.Max(n) != 0 {
			t.Errorf("%s: the kernels have stack frames of %d bytes", name, n)
		}
	}
}

// attributes returns the numbers that a cubin has for its kernels, by kind, one
// for each kernel. An attribute is one byte each of format and kind, and 16
// bits: for format 4 the number of bytes that follow, here the kernel's symbol
// and a number, and for others the value.
func attributes(t *testing.T, name string, info *elf.Section) map[byte][]uint32 {
	t.Helper()
	b, err := info.Data()
	if err != nil {
		t.Fatal(err)
	}
	of := map[byte][]uint32{}
	for len(b) >= 4 {
		format, kind, n := b[0], b[1], int(binary.LittleEndian.Uint16(b[2:]))
		b = b[4:]
		if format != 4 {
			continue
		}
		if n != 8 || len(b) < n {
			t.Fatalf("%s: attribute %#x has %d bytes, of %d", name, kind, n, len(b))
		}
		of[kind] = append(of[kind], binary.LittleEndian.Uint32(b[4:]))
		b = b[n:]
	}
	return of
}

// TestCubinsAreOfThePTX: on a machine without ptxas and a GPU, no other test
// would detect machine code that is older than the PTX.
func TestCubinsAreOfThePTX(t *testing.T) {
	made, err := os.ReadFile("cubin/made")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for line := range strings.Lines(string(made)) {
		if sum, name, ok := strings.Cut(strings.TrimSpace(line), "  "); ok {
			want[name] = sum
		}
	}
	files := map[string]string{"blake3.ptx": "blake3.ptx"}
	for _, name := range cubinNames(t) {
		files[name] = "cubin/" + name
	}
	for name, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprintf("%x", sha256.Sum256(b)); got != want[name] {
			t.Errorf("%s is not the one that cubin/made tells of: run gpu/cubins", file)
		}
	}
	if len(want) != len(files) {
		t.Errorf("cubin/made tells of %d files, and there are %d", len(want), len(files))
	}
}
