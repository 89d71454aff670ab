package wire

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/manifest"
)

func sampleHello() Hello {
	return Hello{
		Terms: Terms{
			Mode: ModePull, ChunkBytes: 4 << 20, PieceBytes: 1 << 20, Hash: manifest.BLAKE3, Slots: 16, QPs: 3, Codec: 2,
			Flags: FlagRecursive | FlagMany, Name: "b", Sizes: FileSizes{MinBytes: 10, MaxBytes: 1 << 63}, Settled: "b/c\n", IO: fileset.IODirect, Transfers: 3,
		},
		Paths: []string{"a\n\xff", "/b"}, GPU: uint64(GPUNamed), GPUName: "MIG-12ab",
		Into: &IntoPlace{Mark: PlaceMark{1, 2, 31: 3}, Leaf: "new"}, AsksCost: true, Warnings: true, Rails: 8,
		Copy: CopyAttempt{ID: fileset.StageID{1, 2, 3}, Attempt: 1 << 30},
	}
}

func TestHelloRoundTrip(t *testing.T) {
	want := sampleHello()
	got, err := DecodeHello(want.Encode())
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
}

func TestHelloOfALaterVersion(t *testing.T) {
	h := sampleHello()
	var w Writer
	w.Buf = h.Encode()
	w.Str(100, "may be ignored")
	if _, err := DecodeHello(w.Buf); err != nil {
		t.Errorf("an optional field: %v", err)
	}
	w.Uint(101|MustUnderstand, 1)
	if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
		t.Errorf("a field that must be understood: %v", err)
	}
}

func TestHelloCutAnywhere(t *testing.T) {
	h := sampleHello()
	b := h.Encode()
	for n := range b {
		// If it is cut between fields it is a shorter hello; anywhere else it is an error.
		if got, err := DecodeHello(b[:n]); err == nil && !bytes.HasPrefix(b, b[:n]) {
			t.Errorf("%d bytes: %+v", n, got)
		}
	}
}

func TestHelloOfABadAttempt(t *testing.T) {
	for _, n := range []int{0, copyAttemptBytes - 1, copyAttemptBytes + 1} {
		var w Writer
		w.Str(tagCopy, string(make([]byte, n)))
		if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}

// No number in a hello exceeds its range, whatever the mode.
func TestHelloNumbersBeyondTheirRange(t *testing.T) {
	for _, tag := range []byte{tagChunk, tagPiece, tagSlots, tagQPs, tagCodec, tagFlags, tagGPU, tagMaxDelete, tagMinFile, tagMaxFile, tagIO, tagTransfers} {
		most, ok := helloBound(tag)
		if !ok {
			t.Errorf("field %#x has no bound", tag)
		}
		for _, v := range []uint64{most + 1, 1<<63 + 2, 1<<64 - 1} {
			var w Writer
			w.Uint(tag, v)
			if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
				t.Errorf("field %#x of %d: %v", tag, v, err)
			}
		}
	}
}

// A hello that describes an impossible earlier attempt is refused.
func TestBadHellosOfLaterTries(t *testing.T) {
	for _, path := range []string{"", "/a", "a/../b", "a//b", "a\x00"} {
		var w Writer
		w.Str(tagSettled, path)
		if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
			t.Errorf("settled up to %q: %v", path, err)
		}
	}
	good := Hello{Terms: Terms{
		Mode: ModePush, ChunkBytes: 1 << 20, PieceBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4, QPs: 1, Flags: FlagRecursive | FlagItself, Settled: "a",
	}, Paths: []string{"to"}}
	if err := good.Check(&good.Terms); err != nil {
		t.Fatal(err)
	}
	for _, more := range []uint64{FlagNoFsync, FlagHardLinks, FlagStream, FlagMany} {
		bad := good
		bad.Terms.Flags |= more
		if err := bad.Check(&bad.Terms); !errors.Is(err, ErrProtocol) {
			t.Errorf("flags %#x: %v", bad.Terms.Flags, err)
		}
	}
}

// A tree that appears as a whole has an id, and excludes options that depend on existing
// files.
func TestHellosOfWholeTrees(t *testing.T) {
	good := Hello{Terms: Terms{
		Mode: ModePull, ChunkBytes: 1 << 20, PieceBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4, QPs: 1, Flags: FlagRecursive | FlagItself | FlagWhole,
		Stage: fileset.StageID{1, 2, 7: 3},
	}, Paths: []string{"from"}}
	if got, err := DecodeHello(good.Encode()); err != nil || !reflect.DeepEqual(got, good) {
		t.Errorf("got %+v, %v", got, err)
	}
	if err := good.Check(&good.Terms); err != nil {
		t.Fatal(err)
	}
	for _, more := range []uint64{FlagDelete, FlagUpdate, FlagExisting, FlagIgnoreExisting, FlagListed, FlagChecksum, FlagAppend, FlagInPlace, FlagStream} {
		bad := good
		bad.Terms.Flags |= more
		if err := bad.Check(&bad.Terms); !errors.Is(err, ErrProtocol) {
			t.Errorf("flags %#x: %v", bad.Terms.Flags, err)
		}
	}
	for _, less := range []uint64{FlagWhole, FlagItself, FlagRecursive} {
		bad := good
		bad.Terms.Flags &^= less
		if err := bad.Check(&bad.Terms); !errors.Is(err, ErrProtocol) {
			t.Errorf("flags %#x: %v", bad.Terms.Flags, err)
		}
	}
	for _, n := range []int{0, 7, 9} {
		var w Writer
		w.Str(tagStage, string(make([]byte, n)))
		if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
			t.Errorf("an id of %d bytes: %v", n, err)
		}
	}
}

// A welcome may omit what earlier attempts have settled, and may not add to it.
func TestAnswersToLaterTries(t *testing.T) {
	h := sampleHello()
	for settled, want := range map[string]bool{h.Terms.Settled: true, "": true, "z": false} {
		w := h
		w.Paths, w.Terms.Settled = nil, settled
		if h.IsAnsweredBy(&w) != want {
			t.Errorf("settled up to %q: %v", settled, !want)
		}
	}
}

// The end of a whole tree reports whether it was published, and nothing else.
func TestNamed(t *testing.T) {
	for _, named := range []bool{true, false} {
		body, got, err := CutNamed(AppendNamed([]byte("roots"), named))
		if err != nil || got != named || string(body) != "roots" {
			t.Errorf("%q, %v, %v", body, got, err)
		}
	}
	for _, bad := range []string{"", "roots\x02", "roots\xff"} {
		if _, _, err := CutNamed([]byte(bad)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// HasSettled uses the order of entries, in which "." comes first.
func TestHasSettled(t *testing.T) {
	for _, c := range []struct {
		upTo, path string
		want       bool
	}{{"", ".", false}, {".", ".", true}, {".", "a", false}, {"a", ".", true}, {"a/b", "a", true}, {"a/b", "a/b", true}, {"a/b", "a/c", false}, {"a", "a!", false}, {"a", "a/b", false}, {"-", ".", true}} {
		p := Terms{Settled: c.upTo}
		if got := p.HasSettled(c.path); got != c.want {
			t.Errorf("%q settled: %q has %v", c.upTo, c.path, got)
		}
	}
}

// Only the sink of a push is sent a directory for partial files, and no path leads
// elsewhere.
func TestHellosOfPartialDirs(t *testing.T) {
	good := Hello{Terms: Terms{
		Mode: ModePush, ChunkBytes: 1 << 20, PieceBytes: 1 << 20, Hash: manifest.XXH3, Slots: 4, QPs: 1, PartialDir: "/parts/x",
	}, Paths: []string{"to"}}
	for _, dir := range []string{"/parts/x", ".parts"} {
		good.Terms.PartialDir = dir
		if got, err := DecodeHello(good.Encode()); err != nil || !reflect.DeepEqual(got, good) || good.Check(&good.Terms) != nil {
			t.Errorf("got %+v, %v", got, err)
		}
	}
	for name, change := range map[string]func(h *Hello){
		"a pull":   func(h *Hello) { h.Terms.Mode = ModePull },
		"a stream": func(h *Hello) { h.Terms.Flags |= FlagStream },
		"a bench":  func(h *Hello) { h.Terms.Mode, h.Paths = ModeBench, nil },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(&bad.Terms); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, dir := range []string{"..", "a/b", "/", "/..", ".", "a\x00", ".gdrcp-0123456789abcdef0123456789abcdef"} {
		var w Writer
		w.Str(tagPartialDir, dir)
		if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) {
			t.Errorf("%q: %v", dir, err)
		}
	}
}

// A client that requires a feature that this version no longer has is refused with an
// error that names it, and one that merely supports it is served.
func TestHelloOfARetiredFeature(t *testing.T) {
	h := sampleHello()
	w := Writer{Buf: h.Encode()}
	w.Uint(31, 1)  // it supported regions of files
	w.Uint(33, 40) // and growing rings
	if _, err := DecodeHello(w.Buf); err != nil {
		t.Errorf("a client that knew regions: %v", err)
	}
	w.Uint(tagIO, 4)
	if _, err := DecodeHello(w.Buf); !errors.Is(err, ErrProtocol) || !strings.Contains(err.Error(), "--io registered") {
		t.Errorf("a client that asks for them: %v", err)
	}
}
