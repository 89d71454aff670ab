package manifest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
)

// A copy of a manifest is the same text, including the files that its writer
// voided, and seen gets exactly the entries that a reader of the copy gets.
func TestCopy(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for i := range 300 {
		h := randomHeader(rng)
		items := randomItems(rng, h)
		if i == 0 {
			h, items = goldenHeader, goldenItems()
		}
		text := manifestText(t, h, items)
		r, err := NewReader(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		var copied bytes.Buffer
		w, err := NewWriter(&copied, h)
		if err != nil {
			t.Fatal(err)
		}
		var seen []Entry
		err = Copy(w, r, func(e *Entry) { seen = append(seen, *e) })
		if _, closeErr := w.Close(); err != nil || closeErr != nil || copied.String() != text {
			t.Fatalf("tree %d: %v, %v\n%s\nwant\n%s", i, err, closeErr, &copied, text)
		}
		for _, it := range items {
			if it.void {
				continue
			}
			if len(seen) == 0 || seen[0] != it.Entry {
				t.Fatalf("tree %d: saw %+v, want %+v", i, seen, it.Entry)
			}
			seen = seen[1:]
		}
		if len(seen) > 0 {
			t.Fatalf("tree %d: saw %+v besides", i, seen)
		}
	}
}

// A fault in the manifest, and an error of the destination, end a copy.
func TestCopyFails(t *testing.T) {
	for at := 0; at < len(golden); at += 7 {
		r, err := NewReader(strings.NewReader(golden[:at]))
		if err != nil {
			continue
		}
		w, err := NewWriter(&bytes.Buffer{}, goldenHeader)
		if err != nil {
			t.Fatal(err)
		}
		if err := Copy(w, r, nil); !errors.Is(err, ErrTruncated) {
			t.Errorf("%d bytes of a manifest: %v", at, err)
		}
	}
	r, err := NewReader(strings.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	w, err := NewWriter(&fullDisk{100}, goldenHeader)
	if err == nil {
		err = Copy(w, r, nil)
	}
	if err == nil {
		_, err = w.Close()
	}
	if !errors.Is(err, errFull) {
		t.Errorf("a full disk: %v", err)
	}
}
