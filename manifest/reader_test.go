package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/klauspost/compress/zstd"
)

// readAll reads text to its end and returns the error that stopped it, nil at a
// correct end.
func readAll(text io.Reader) ([]item, error) {
	r, err := NewReader(text)
	if err != nil {
		return nil, err
	}
	items, err := readItems(r)
	if again, err2 := r.Next(); again != nil || err2 != err {
		return items, fmt.Errorf("after %w: next returns %v, %w", err, again, err2)
	}
	if err == io.EOF {
		err = nil
	}
	return items, errors.Join(err, r.Close())
}

// compressed returns text as one zstd frame.
func compressed(t testing.TB, text string, opts ...zstd.EOption) []byte {
	t.Helper()
	enc, err := zstd.NewWriter(nil, append(opts, zstd.WithEncoderConcurrency(1))...)
	if err != nil {
		t.Fatal(err)
	}
	defer enc.Close()
	return enc.EncodeAll([]byte(text), nil)
}

// Every truncation of a manifest is detected, and none passes for a complete one.
func TestReaderTruncatedAnywhere(t *testing.T) {
	for n := range len(golden) {
		if _, err := readAll(strings.NewReader(golden[:n])); !errors.Is(err, ErrTruncated) {
			t.Fatalf("first %d of %d bytes: %v, want ErrTruncated", n, len(golden), err)
		}
	}
	whole := compressed(t, golden)
	for n := range len(whole) {
		if _, err := readAll(bytes.NewReader(whole[:n])); !errors.Is(err, ErrTruncated) && (n >= len(zstdMagic) || !errors.Is(err, ErrFormat)) {
			t.Fatalf("first %d of %d compressed bytes: %v, want ErrTruncated", n, len(whole), err)
		}
	}
}

// Every changed byte is detected, unless it belongs to a void file.
func TestReaderSeesEveryFlippedByte(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	for i := range golden {
		b := []byte(golden)
		b[i] ^= byte(1 + rng.IntN(255))
		items, err := readAll(bytes.NewReader(b))
		if err == nil {
			if line := strings.Count(golden[:i], "\n") + 1; line != 9 && line != 10 { // of "e void"
				t.Errorf("byte %d (line %d) changed to %q: read as %+v", i, line, b[i], items)
			}
		}
	}
}

const (
	rejectHead = "gdrcp-manifest 1 crc32c 65536\n"
	rejectFile = "f 0644 0.000000000 131072 * f\n"
)

// rejected lists texts that a reader refuses, with the error and the line.
var rejected = map[string]struct {
	text string
	want error
	line int
}{
	"nothing":             {"", ErrTruncated, 1},
	"other file":          {"hello\n", ErrFormat, 1},
	"no newline at all":   {strings.Repeat("x", 1<<20), ErrFormat, 1},
	"version":             {"gdrcp-manifest 3 new things\n", ErrVersion, 1},
	"version word":        {"gdrcp-manifest 01 crc32c 65536\n", ErrVersion, 1},
	"algorithm":           {"gdrcp-manifest 1 md5 65536\n", ErrFormat, 1},
	"piece size":          {"gdrcp-manifest 1 crc32c 65537\n", ErrFormat, 1},
	"piece size 0":        {"gdrcp-manifest 1 crc32c 0\n", ErrFormat, 1},
	"piece size spelling": {"gdrcp-manifest 1 crc32c 065536\n", ErrFormat, 1},
	"header tail":         {"gdrcp-manifest 1 crc32c 65536 \n", ErrFormat, 1},
	"carriage return":     {"gdrcp-manifest 1 crc32c 65536\r\n", ErrFormat, 1},
	"empty line":          {rejectHead + "\n", ErrFormat, 2},
	"unknown type":        {rejectHead + "p 0644 0.000000000 a\n", ErrEntry, 2},
	"long type":           {rejectHead + "dd 0644 0.000000000 a\n", ErrFormat, 2},
	"mode":                {rejectHead + "d 0648 0.000000000 a\n", ErrFormat, 2},
	"mode of 5":           {rejectHead + "d 00644 0.000000000 a\n", ErrFormat, 2},
	"time":                {rejectHead + "d 0644 0.0 a\n", ErrFormat, 2},
	"no path":             {rejectHead + "d 0644 0.000000000\n", ErrFormat, 2},
	"empty path":          {rejectHead + "d 0644 0.000000000 \n", ErrPath, 2},
	"dot dot":             {rejectHead + "d 0644 0.000000000 a/../b\n", ErrPath, 2},
	"absolute":            {rejectHead + "d 0644 0.000000000 /etc\n", ErrPath, 2},
	"NUL":                 {rejectHead + "d 0644 0.000000000 a\\x00\n", ErrPath, 2},
	"raw control":         {rejectHead + "d 0644 0.000000000 a\x1b\n", ErrFormat, 2},
	"long line":           {rejectHead + "d 0644 0.000000000 " + strings.Repeat("a/", maxLineBytes) + "\n", ErrFormat, 2},
	"size":                {rejectHead + "f 0644 0.000000000 -1 00000000 a\n", ErrFormat, 2},
	"empty, digest":       {rejectHead + "f 0644 0.000000000 0 00000001 a\n", ErrRoot, 2},
	"digest length":       {rejectHead + "f 0644 0.000000000 1 0000 a\n", ErrFormat, 2},
	"one piece as many":   {rejectHead + "f 0644 0.000000000 65536 * a\n", ErrFormat, 2},
	"many pieces as one":  {rejectHead + "f 0644 0.000000000 65537 00000000 a\n", ErrFormat, 2},
	"link, no target":     {rejectHead + "l 0777 0.000000000 a\n", ErrEntry, 2},
	"link, two tabs":      {rejectHead + "l 0777 0.000000000 a\tb\tc\n", ErrFormat, 2},
	"order":               {rejectHead + "d 0700 0.000000000 b\nd 0700 0.000000000 a\n", ErrOrder, 3},
	"twice":               {rejectHead + "d 0700 0.000000000 b\nd 0700 0.000000000 b\n", ErrOrder, 3},
	"below a link":        {rejectHead + "l 0777 0.000000000 a\t/etc\nd 0700 0.000000000 a/b\n", ErrEntry, 3},
	"after void":          {rejectHead + rejectFile + "= -\nd 0700 0.000000000 f\n", ErrOrder, 4},
	"no pieces":           {rejectHead + rejectFile + "d 0700 0.000000000 g\n", ErrFormat, 3},
	"piece too few":       {rejectHead + rejectFile + " 00000001\n= 00000001\n", ErrFormat, 4},
	"piece too many":      {rejectHead + rejectFile + " 00000001\n 00000002\n 00000003\n", ErrFormat, 5},
	"run too long":        {rejectHead + rejectFile + " 00000001 x3\n", ErrFormat, 3},
	"run endless":         {rejectHead + rejectFile + " 00000001 x9223372036854775807\n", ErrFormat, 3},
	"run of 1":            {rejectHead + rejectFile + " 00000001 x1\n", ErrFormat, 3},
	"run of 0":            {rejectHead + rejectFile + " 00000001 x0\n", ErrFormat, 3},
	"run, no x":           {rejectHead + rejectFile + " 00000001 2\n", ErrFormat, 3},
	"run in two":          {rejectHead + rejectFile + " 00000001\n 00000001\n", ErrFormat, 4},
	"piece digest":        {rejectHead + rejectFile + " 0000000g\n", ErrFormat, 3},
	"piece not indented":  {rejectHead + rejectFile + "00000001\n", ErrFormat, 3},
	"file root":           {rejectHead + rejectFile + " 00000001 x2\n= 00000000\n", ErrRoot, 4},
	"file root form":      {rejectHead + rejectFile + " 00000001 x2\n= --\n", ErrFormat, 4},
	"end without file":    {rejectHead + "= -\n", ErrFormat, 2},
	"piece without file":  {rejectHead + " 00000001\n", ErrFormat, 2},
	"garbage at the end":  {golden + "\n", ErrFormat, 18},
	"two manifests":       {golden + golden, ErrFormat, 18},
	"last line form":      {rejectHead + "root x y entries=0 bytes=0\n", ErrFormat, 2},
	"counts":              {strings.Replace(golden, "entries=7", "entries=8", 1), ErrRoot, 18},
	"bytes":               {strings.Replace(golden, "bytes=1", "bytes=2", 1), ErrRoot, 18},
	"content root":        {strings.Replace(golden, "root 158", "root 157", 1), ErrRoot, 18},
	"meta root":           {strings.Replace(golden, " bcf", " bce", 1), ErrRoot, 18},
	"mode changed":        {strings.Replace(golden, "d 1755", "d 1757", 1), ErrRoot, 18},
	"line left out":       {strings.Replace(golden, "f 0644 1000000000.000000000 9 e3069283 a name with spaces\n", "", 1), ErrRoot, 17},
}

func TestReaderRejects(t *testing.T) {
	for name, c := range rejected {
		_, err := readAll(strings.NewReader(c.text))
		if !errors.Is(err, c.want) || !strings.Contains(err.Error(), fmt.Sprintf("line %d: ", c.line)) {
			t.Errorf("%s: %v, want %v in line %d", name, err, c.want, c.line)
		}
	}
}

// An error of the stream is neither a truncated manifest nor a malformed one.
func TestReaderStreamError(t *testing.T) {
	broken := errors.New("cable pulled")
	for name, text := range map[string][]byte{"text": []byte(golden), "zstd": compressed(t, golden)} {
		for _, n := range []int{0, 3, 10, len(text) / 2, len(text) - 1} {
			_, err := readAll(io.MultiReader(bytes.NewReader(text[:n]), iotest.ErrReader(broken)))
			if !errors.Is(err, broken) || errors.Is(err, ErrTruncated) || errors.Is(err, ErrFormat) {
				t.Errorf("%s, %d bytes: %v", name, n, err)
			}
		}
	}
}

func TestReaderSmallReads(t *testing.T) {
	for name, text := range map[string][]byte{"text": []byte(golden), "zstd": compressed(t, golden)} {
		items, err := readAll(iotest.OneByteReader(bytes.NewReader(text)))
		if err != nil || len(items) != len(goldenItems()) {
			t.Errorf("%s: %d items, %v", name, len(items), err)
		}
	}
}

// The root of a file of several pieces is known when its pieces have been read,
// and not before.
func TestReaderRootAfterPieces(t *testing.T) {
	r, err := NewReader(strings.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for {
		e, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if e.Path != "d" {
			continue
		}
		if e.Root != (Digest{}) {
			t.Errorf("root %x before the pieces", e.Root)
		}
		if err := r.SkipPieces(); err != nil || CRC32C.Hex(e.Root) != "a1121938" {
			t.Errorf("root %x after the pieces, %v", e.Root, err)
		}
		if _, _, err := r.NextPiece(); err != io.EOF {
			t.Errorf("a piece after the last: %v", err)
		}
		return
	}
}

func TestReaderZstdHostile(t *testing.T) {
	bomb := compressed(t, strings.Repeat("\x00", 64<<20))
	flipped := compressed(t, golden)
	flipped[len(flipped)-1] ^= 1 // the frame's checksum
	wide := compressed(t, golden+strings.Repeat("x", 32<<20), zstd.WithWindowSize(32<<20), zstd.WithSingleSegment(false))
	for name, c := range map[string]struct {
		data []byte
		want error
	}{
		"bomb":              {bomb, ErrFormat},
		"bomb after":        {append(compressed(t, golden), bomb...), ErrFormat},
		"checksum":          {flipped, ErrFormat},
		"window too large":  {wide, ErrFormat},
		"garbage after":     {append(compressed(t, golden), "garbage"...), nil},
		"two frames":        {append(compressed(t, golden[:100]), compressed(t, golden[100:])...), nil},
		"zstd within zstd":  {compressed(t, string(compressed(t, golden))), ErrFormat},
		"magic, then text":  {append(zstdMagic[:4:4], golden...), ErrFormat},
		"empty, compressed": {compressed(t, ""), ErrTruncated},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := readAll(bytes.NewReader(c.data))
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 4*maxWindowBytes {
			t.Errorf("%s: %d bytes allocated for %d", name, used, len(c.data))
		}
		if name == "garbage after" { // fewer bytes than a frame's header count as truncated
			if !errors.Is(err, ErrFormat) && !errors.Is(err, ErrTruncated) {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if (c.want == nil && err != nil) || !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestReaderClosed(t *testing.T) {
	r, err := NewReader(strings.NewReader(golden))
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if e, err := r.Next(); err == nil || err == io.EOF {
		t.Errorf("a closed reader returned %v, %v", e, err)
	}
}

// checkReadable reads text. The part that the reader accepts, up to its end or to the
// point of refusal, must be the canonical text of the entries that it returned.
func checkReadable(t *testing.T, text []byte) {
	r, err := NewReader(bytes.NewReader(text))
	if err != nil {
		return
	}
	defer r.Close()
	if r.HasIdentities() {
		return // FuzzIdentities covers them
	}
	items, err := readItems(r)
	again := manifestText(t, r.Header(), items)
	if err != io.EOF {
		kinds := []error{ErrFormat, ErrTruncated, ErrVersion, ErrOrder, ErrRoot, ErrPath, ErrEntry}
		if !slices.ContainsFunc(kinds, func(kind error) bool { return errors.Is(err, kind) }) {
			t.Fatalf("error of no kind: %v", err)
		}
		again = again[:strings.LastIndex(again, "root ")]
	}
	if r.source.decoder == nil && !strings.HasPrefix(string(text), again) {
		t.Fatalf("accepted (%v)\n%q\nwhich writes as\n%q", err, text, again)
	}
}

func FuzzReader(f *testing.F) {
	f.Add([]byte(golden))
	rng := rand.New(rand.NewPCG(11, 12))
	for range 20 {
		h := randomHeader(rng)
		f.Add([]byte(manifestText(f, h, randomItems(rng, h))))
	}
	f.Fuzz(checkReadable)
}

func FuzzReaderZstd(f *testing.F) {
	f.Add(compressed(f, golden))
	f.Add(compressed(f, strings.Repeat(golden, 100)))
	f.Add(append(compressed(f, golden[:50]), compressed(f, golden[50:])...))
	f.Fuzz(func(t *testing.T, data []byte) {
		checkReadable(t, append(zstdMagic[:4:4], data...))
		checkReadable(t, data)
	})
}

func FuzzEscape(f *testing.F) {
	f.Add("a b\n\\\xff\u202e ")
	f.Fuzz(func(t *testing.T, name string) {
		escaped := appendEscaped(nil, name)
		if bytes.ContainsAny(escaped, "\n\t\r\x00") || len(escaped) > 4*len(name) {
			t.Fatalf("%q escaped as %q", name, escaped)
		}
		if back, ok := appendUnescaped(nil, escaped); !ok || string(back) != name {
			t.Fatalf("%q came back as %q", name, back)
		}
	})
}

func BenchmarkReader(b *testing.B) {
	h := Header{XXH3, DefaultPieceBytes}
	for name, items := range map[string][]item{"files": manyItems(), "pieces": onePieces()} {
		text := manifestText(b, h, items)
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := readToEnd(text); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// readToEnd reads text and counts its entries.
func readToEnd(text string) (n int, err error) {
	r, err := NewReader(strings.NewReader(text))
	if err != nil {
		return 0, err
	}
	for {
		if _, err := r.Next(); err == io.EOF {
			return n, nil
		} else if err != nil {
			return n, err
		}
		n++
	}
}

// manyItems is 10000 small files, onePieces one file of 10000 pieces.
func manyItems() (items []item) {
	for _, e := range manyFiles(10000) {
		items = append(items, item{Entry: e, pieces: []run{{e.Root, 1}}})
	}
	return items
}

func onePieces() []item {
	var pieces []run
	for i := range 10000 {
		pieces = append(pieces, run{leafDigest(XXH3, i), 1})
	}
	return []item{fileItem(Header{XXH3, DefaultPieceBytes}, "big", 10000<<20, pieces...)}
}
