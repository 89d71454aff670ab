package chunker

import (
	"errors"
	"io"
	"os"
	"testing"
	"time"

	"gdrcp/internal/fileset"
)

// tryMapping is a register for TrialMap that counts its calls.
type tryMapping struct {
	registered, released int
	bytes                int
	err, releaseErr      error
}

func (r *tryMapping) register(mem []byte) (func() error, error) {
	r.registered++
	r.bytes = len(mem)
	return func() error { r.released++; return r.releaseErr }, r.err
}

// trialMapper is a File or a Temp.
type trialMapper interface {
	TrialMap(int, func([]byte) (func() error, error)) (time.Duration, time.Duration, error)
}

// checkTrials looks at what TrialMap does with bytes of a file, of which it tries has.
func checkTrials(t *testing.T, f trialMapper, bytes, has int) {
	t.Helper()
	r := &tryMapping{}
	copied, mapped, err := f.TrialMap(bytes, r.register)
	if err != nil || copied <= 0 || mapped <= 0 {
		t.Errorf("TrialMap(%d): %v, %v, %v", bytes, copied, mapped, err)
	}
	if r.bytes != has || r.registered == 0 || r.registered != r.released {
		t.Errorf("TrialMap(%d): %d bytes registered, want %d; %d times, released %d times", bytes, r.bytes, has, r.registered, r.released)
	}
	t.Logf("%d bytes: %v copied, %v mapped", bytes, copied, mapped)
	why := errors.New("no memory of this kind")
	for _, r := range []*tryMapping{{err: why}, {releaseErr: why}} {
		if _, _, err := f.TrialMap(bytes, r.register); !errors.Is(err, why) {
			t.Errorf("an error of the device became %v", err)
		}
	}
	for _, bytes := range []int{0, -1} {
		if _, _, err := f.TrialMap(bytes, r.register); err == nil {
			t.Errorf("%d bytes were tried", bytes)
		}
	}
}

func TestTrialOfReading(t *testing.T) {
	data := randomBytes(3<<20 + 77)
	tree, f, path := openMemoryFile(t, data)
	noLeaks(t)
	checkTrials(t, f, 2<<20+1, 2<<20+1)
	checkTrials(t, f, 16<<20, len(data))
	if n := tree.Read().Of(fileset.IOBuffered) + tree.Read().Of(fileset.IORegistered); n != 0 {
		t.Errorf("%d bytes of trials are counted", n)
	}
	if err := os.Truncate(path, 1<<20); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.TrialMap(2<<20, (&tryMapping{}).register); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("of a file that was cut short: %v", err)
	}
}

func TestTrialOfWriting(t *testing.T) {
	dir := tmpfsDir(t)
	s, temp := createIn(t, dir, SinkOptions{}, 8<<20)
	before := listTree(t, dir)
	noLeaks(t)
	checkTrials(t, temp, 2<<20, 2<<20)
	checkTrials(t, temp, 2<<20+1, 2<<20+os.Getpagesize())
	wantTree(t, dir, before...)
	if n := s.Wrote().Of(fileset.IOBuffered) + s.Wrote().Of(fileset.IORegistered); n != 0 {
		t.Errorf("%d bytes of trials are counted", n)
	}
	if ahead := s.deviceOf(s.base).rungs.aheadBytes.Load(); ahead != 0 {
		t.Errorf("%d bytes are still to come", ahead)
	}
	publishTemp(t, s, temp)
}
