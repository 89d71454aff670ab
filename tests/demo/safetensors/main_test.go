package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// parse reads a checkpoint as the format's description says, not as write does.
func parse(t *testing.T, file []byte) (tensors map[string]tensor, data []byte) {
	t.Helper()
	if len(file) < 8 {
		t.Fatalf("only %d bytes", len(file))
	}
	length := binary.LittleEndian.Uint64(file)
	if length > uint64(len(file)-8) || length%8 != 0 || file[8] != '{' {
		t.Fatalf("header of %d bytes, beginning with %q, in a file of %d", length, file[8], len(file))
	}
	var header map[string]json.RawMessage
	if err := json.Unmarshal(file[8:8+length], &header); err != nil {
		t.Fatal(err)
	}
	delete(header, "__metadata__")
	tensors = map[string]tensor{}
	for name, raw := range header {
		var entry tensor
		if err := json.Unmarshal(raw, &entry); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		tensors[name] = entry
	}
	return tensors, file[8+length:]
}

func TestWriteIsSafetensors(t *testing.T) {
	sizes := map[string]int64{"BF16": 2, "U8": 1}
	for _, dataBytes := range []int64{1, 1<<20 + 3, 64 << 20} {
		var file bytes.Buffer
		if err := write(&file, dataBytes, 7); err != nil {
			t.Fatal(err)
		}
		tensors, data := parse(t, file.Bytes())
		if int64(len(data)) != dataBytes {
			t.Errorf("%d bytes of tensors, want %d", len(data), dataBytes)
		}
		var spans [][2]int64
		for name, entry := range tensors {
			want := sizes[entry.DType]
			for _, n := range entry.Shape {
				want *= n
			}
			if got := entry.Offsets[1] - entry.Offsets[0]; got != want {
				t.Errorf("%s: %d bytes, but %s %v is %d", name, got, entry.DType, entry.Shape, want)
			}
			spans = append(spans, entry.Offsets)
		}
		slices.SortFunc(spans, func(a, b [2]int64) int { return int(a[1] - b[1]) })
		at := int64(0)
		for _, span := range spans { // no hole and no overlap, as the format demands
			if span[0] != at {
				t.Errorf("a tensor begins at %d, the one before ended at %d", span[0], at)
			}
			at = span[1]
		}
		if at != dataBytes {
			t.Errorf("tensors end at %d of %d", at, dataBytes)
		}
	}
}

func TestSeedDeterminesValues(t *testing.T) {
	made := map[uint64][]byte{}
	for _, seed := range []uint64{1, 2} {
		for range 2 {
			var file bytes.Buffer
			if err := write(&file, 1<<16, seed); err != nil {
				t.Fatal(err)
			}
			if before := made[seed]; before != nil && !bytes.Equal(before, file.Bytes()) {
				t.Errorf("seed %d gave two files", seed)
			}
			made[seed] = file.Bytes()
		}
	}
	if bytes.Equal(made[1], made[2]) {
		t.Error("two seeds gave one file")
	}
}

func TestCreateKeepsWhatExists(t *testing.T) {
	name := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(name, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := create(name, 100, 1); !errors.Is(err, fs.ErrExist) {
		t.Errorf("create: %v, want %v", err, fs.ErrExist)
	}
	if kept, err := os.ReadFile(name); err != nil || string(kept) != "mine" {
		t.Errorf("the file is now %q, %v", kept, err)
	}
}
