package xfer

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"gdrcp/chunker/dest"
	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/wire"
)

// Data written to a fifo or a character device cannot be taken back, so a later attempt does not
// begin again.
func TestSpecialOnceOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for flags, want := range map[uint64]string{0: "", wire.FlagItself: "start the copy anew", wire.FlagReadBack: "--verify-written"} {
		store, err := openStore(&wire.Terms{Flags: flags}, dest.Options{Dest: path}, &Tally{})
		if want == "" {
			if err != nil {
				t.Fatal(err)
			}
			store.Close()
		} else if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with flags %#x: %v", flags, err)
		}
	}
	if _, err := openStore(&wire.Terms{IO: fileset.IODirect}, dest.Options{Dest: path}, &Tally{}); err == nil {
		t.Error("--io direct is accepted")
	}
}
