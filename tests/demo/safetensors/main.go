// Command safetensors writes a model checkpoint in the safetensors format, of
// a given size, for a demonstration to copy: the tensors of a small decoder
// model, with pseudo-random values that a seed determines.
//
//	safetensors [-mib N] [-seed N] FILE
//
// The format (github.com/huggingface/safetensors, "Format"): eight bytes with
// the length of the header, little-endian; the header, a JSON object that
// gives each tensor's type, shape and place in the rest; the rest.
package main

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
)

// The measures of the model, as in one of about a billion parameters.
const (
	hidden      = 1024
	inner       = 2816
	vocabulary  = 8192
	bytesPerNum = 2 // BF16
	// headerAlign is what the header is padded to with spaces, so that the tensors are aligned.
	headerAlign = 8
)

// tensor is one entry of the header.
type tensor struct {
	DType   string   `json:"dtype"`
	Shape   []int64  `json:"shape"`
	Offsets [2]int64 `json:"data_offsets"` // from the header's end: first byte, and the one after the last
}

func main() {
	mib := flag.Int64("mib", 512, "how many `MiB` of tensors to write")
	seed := flag.Uint64("seed", 1, "what the values are made from")
	flag.Parse()
	if flag.NArg() != 1 || *mib < 1 {
		fmt.Fprintln(os.Stderr, "usage: safetensors [-mib N] [-seed N] FILE")
		os.Exit(2)
	}
	if err := create(flag.Arg(0), *mib<<20, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "safetensors:", err)
		os.Exit(1)
	}
}

// create writes a checkpoint with dataBytes of tensors to a new file. It
// leaves none where it fails, and an existing one as it is.
func create(name string, dataBytes int64, seed uint64) (err error) {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fmt.Errorf("create checkpoint: %w", err)
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			os.Remove(name)
		}
	}()
	w := bufio.NewWriterSize(f, 1<<20)
	if err := write(w, dataBytes, seed); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

// write writes header and tensors.
func write(w io.Writer, dataBytes int64, seed uint64) error {
	header, err := json.Marshal(layout(dataBytes))
	if err != nil {
		return fmt.Errorf("encode header: %w", err)
	}
	if over := len(header) % headerAlign; over > 0 {
		header = append(header, bytes.Repeat([]byte{' '}, headerAlign-over)...)
	}
	if _, err := w.Write(binary.LittleEndian.AppendUint64(nil, uint64(len(header)))); err != nil {
		return err
	}
	if _, err := w.Write(header); err != nil {
		return err
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	_, err = io.CopyN(w, rand.NewChaCha8(key), dataBytes)
	return err
}

// layout names the tensors that fill dataBytes: an embedding, as many layers as
// fit, and a head with what is left.
func layout(dataBytes int64) map[string]any {
	header := map[string]any{"__metadata__": map[string]string{"format": "pt"}}
	at := int64(0)
	add := func(name, dtype string, numBytes int64, shape ...int64) bool {
		size := numBytes
		for _, n := range shape {
			size *= n
		}
		if at+size > dataBytes {
			return false
		}
		header[name] = tensor{DType: dtype, Shape: shape, Offsets: [2]int64{at, at + size}}
		at += size
		return true
	}
	bf16 := func(name string, shape ...int64) bool { return add(name, "BF16", bytesPerNum, shape...) }

	fits := bf16("model.embed_tokens.weight", vocabulary, hidden)
	for n := 0; fits; n++ {
		layer := fmt.Sprintf("model.layers.%d.", n)
		fits = bf16(layer+"input_layernorm.weight", hidden) &&
			bf16(layer+"self_attn.q_proj.weight", hidden, hidden) && bf16(layer+"self_attn.k_proj.weight", hidden/4, hidden) &&
			bf16(layer+"self_attn.v_proj.weight", hidden/4, hidden) && bf16(layer+"self_attn.o_proj.weight", hidden, hidden) &&
			bf16(layer+"post_attention_layernorm.weight", hidden) && bf16(layer+"mlp.gate_proj.weight", inner, hidden) &&
			bf16(layer+"mlp.up_proj.weight", inner, hidden) && bf16(layer+"mlp.down_proj.weight", hidden, inner)
	}
	add("lm_head.weight", "U8", 1, dataBytes-at)
	return header
}
