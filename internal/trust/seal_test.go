package trust_test

import (
	"bytes"
	"errors"
	"testing"

	"gdrcp/internal/trust"
)

func sessions(t testing.TB) (client, server *trust.Session) {
	t.Helper()
	k := newKey(t, "k")
	c, s, err := shake(t, k, k, "", "")
	if err != nil {
		t.Fatal(err)
	}
	return c, s
}

func TestMessagesAreTakenOnceAndInOrder(t *testing.T) {
	c, s := sessions(t)
	lane := trust.Lane{QP: 1}
	seal, _ := c.Messages(lane)
	_, open := s.Messages(lane)
	one, two, three := seal.Seal(nil, []byte("one")), seal.Seal(nil, []byte("two")), seal.Seal(nil, []byte("three"))
	take := func(b []byte) error { _, err := open.Open(bytes.Clone(b)); return err }
	if err := take(two); err != nil { // one message was never sent
		t.Fatal(err)
	}
	for name, b := range map[string][]byte{"repeated": two, "out of order": one, "cut": three[:len(three)-1], "empty": nil, "of 23 bytes": three[:23]} {
		if err := take(b); !errors.Is(err, trust.ErrForged) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := open.Open(three); err != nil || string(got) != "three" {
		t.Errorf("%q, %v", got, err)
	}
}

// TestSealsOfOneUseFitNoOther: seals are bound to the direction, the lane, and the use.
func TestSealsOfOneUseFitNoOther(t *testing.T) {
	c, s := sessions(t)
	lane := trust.Lane{QP: 1}
	seal, own := c.Messages(lane)
	sealed := seal.Seal(nil, []byte("x"))
	_, door := s.Door()
	_, other := s.Messages(trust.Lane{QP: 2})
	_, later := s.Messages(trust.Lane{QP: 1, Epoch: 1})
	for name, o := range map[string]*trust.Opener{"its own end": own, "the door": door, "another queue pair": other, "another epoch": later} {
		if _, err := o.Open(bytes.Clone(sealed)); !errors.Is(err, trust.ErrForged) {
			t.Errorf("%s opens it: %v", name, err)
		}
	}
}

func TestEveryBitOfAMessageCounts(t *testing.T) {
	c, s := sessions(t)
	seal, _ := c.Door()
	sealed := seal.Seal(nil, []byte("some words"))
	for bit := range 8 * len(sealed) {
		_, open := s.Door()
		b := bytes.Clone(sealed)
		b[bit/8] ^= 1 << (bit % 8)
		if _, err := open.Open(b); !errors.Is(err, trust.ErrForged) {
			t.Fatalf("bit %d: %v", bit, err)
		}
	}
}

func TestChunks(t *testing.T) {
	c, s := sessions(t)
	out, in := c.Chunks(true), s.Chunks(false)
	plain := bytes.Repeat([]byte("payload "), 1000)
	buf := append(make([]byte, 0, len(plain)+trust.TagBytes), plain...)
	number, tag := out.SealPayload(buf)
	again := append(make([]byte, 0, len(plain)+trust.TagBytes), plain...)
	if n, _ := out.SealPayload(again); n == number || bytes.Equal(again, buf) {
		t.Error("two payloads have one nonce")
	}
	open := func(change func(b []byte, n *uint64, tag *[trust.TagBytes]byte)) ([]byte, error) {
		b, n, g := append(make([]byte, 0, len(buf)+trust.TagBytes), buf...), number, tag
		change(b, &n, &g)
		return b, in.OpenPayload(b, n, g)
	}
	if b, err := open(func([]byte, *uint64, *[trust.TagBytes]byte) {}); err != nil || !bytes.Equal(b, plain) {
		t.Fatal(err)
	}
	for name, change := range map[string]func(b []byte, n *uint64, tag *[trust.TagBytes]byte){
		"a bit of the payload": func(b []byte, _ *uint64, _ *[trust.TagBytes]byte) { b[77] ^= 1 },
		"the number":           func(_ []byte, n *uint64, _ *[trust.TagBytes]byte) { *n++ },
		"the tag":              func(_ []byte, _ *uint64, g *[trust.TagBytes]byte) { g[0] ^= 1 },
	} {
		if _, err := open(change); !errors.Is(err, trust.ErrForged) {
			t.Errorf("%s was changed: %v", name, err)
		}
	}
	if err := s.Chunks(true).OpenPayload(append(make([]byte, 0, len(buf)+16), buf...), number, tag); err == nil {
		t.Error("the seal of the other direction fits")
	}
}

func TestHeaders(t *testing.T) {
	c, s := sessions(t)
	out, in := c.Chunks(true), s.Chunks(false)
	place, outside, plain := trust.HeaderPlace{Epoch: 1, Slot: 2, Generation: 3}, []byte("hop"), []byte("end to end")
	sealed := out.SealHeader(append(make([]byte, 0, 64), plain...), outside, place)
	if got, err := in.OpenHeader(bytes.Clone(sealed), outside, place); err != nil || !bytes.Equal(got, plain) {
		t.Fatalf("%q, %v", got, err)
	}
	for _, p := range []trust.HeaderPlace{{2, 2, 3}, {1, 3, 3}, {1, 2, 4}} {
		if _, err := in.OpenHeader(bytes.Clone(sealed), outside, p); !errors.Is(err, trust.ErrForged) {
			t.Errorf("a header for %v is taken at %v", place, p)
		}
	}
	if _, err := in.OpenHeader(bytes.Clone(sealed), []byte("hoP"), place); !errors.Is(err, trust.ErrForged) {
		t.Error("what is outside of the seal does not count")
	}
}

func FuzzOpener(f *testing.F) {
	c, s := sessions(f)
	seal, _ := c.Door()
	good := seal.Seal(nil, []byte("words"))
	f.Add(good)
	f.Fuzz(func(t *testing.T, b []byte) {
		_, open := s.Door()
		if _, err := open.Open(bytes.Clone(b)); err == nil && !bytes.Equal(b, good) {
			t.Fatalf("%x opens", b)
		}
	})
}
