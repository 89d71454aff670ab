package xfer

import (
	"bytes"
	"errors"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/xfer/internal/wire"
)

// parts cuts attributes into messages of that many bytes.
func parts(id uint64, x fileset.Xattrs, room int) (bodies [][]byte) {
	var b []byte
	for off := 0; off < len(x); {
		b, off = wire.AppendXattrs(b, id, x, off, room)
		if off < len(x) {
			bodies, b = append(bodies, b), nil
		}
	}
	return append(bodies, b)
}

// attribute returns an encoded attribute of that many bytes.
func attribute(n int) fileset.Xattrs {
	const name = "user.a"
	return append(append(append([]byte{byte(len(name))}, name...), byte(n)|0x80, byte(n>>7)), bytes.Repeat([]byte{'v'}, n)...)
}

func TestXattrsArrive(t *testing.T) {
	k := linkSink(wire.FlagXattrs)
	for id, n := range []int{200, 16000, 300} {
		x := attribute(n)
		for _, body := range parts(uint64(id), x, 700) {
			if len(body) > 700 {
				t.Errorf("a part of %d bytes", len(body))
			}
			if err := k.hearXattrs(body); err != nil {
				t.Fatal(err)
			}
		}
		e := linkEntry(uint64(id), "a", wire.FileNames{})
		if err := k.giveXattrs(e); err != nil || !bytes.Equal(e.attrs.Xattrs, x) || e.xattrBytes != len(x) || e.attrs.UID != -1 {
			t.Errorf("entry %d: %d bytes of %d, %v", id, e.xattrBytes, len(x), err)
		}
	}
	if len(k.window.xattrs) != 0 {
		t.Errorf("%d are left", len(k.window.xattrs))
	}
	if err := k.giveXattrs(linkEntry(9, "a", wire.FileNames{})); err != nil {
		t.Errorf("an entry without attributes: %v", err)
	}
}

// Any error in attributes ends the session before they are kept.
func TestHostileXattrs(t *testing.T) {
	whole := attribute(1000)
	cut := parts(0, whole, 400)
	announced := func(k *sink) { k.window.announced = 1 }
	for name, tc := range map[string]struct {
		flags  uint64
		before func(*sink)
		bodies [][]byte
		give   bool
	}{
		"not asked for":             {bodies: parts(0, whole, 4000)},
		"of an entry that was":      {flags: wire.FlagXattrs, before: announced, bodies: parts(0, whole, 4000)},
		"beyond the window":         {flags: wire.FlagXattrs, bodies: parts(entryWindow, whole, 4000)},
		"after the end":             {flags: wire.FlagXattrs, before: func(k *sink) { k.window.ended = true }, bodies: parts(0, whole, 4000)},
		"a part twice":              {flags: wire.FlagXattrs, bodies: [][]byte{cut[0], cut[0]}},
		"a part left out":           {flags: wire.FlagXattrs, bodies: [][]byte{cut[0], cut[2]}},
		"from the middle":           {flags: wire.FlagXattrs, bodies: cut[1:2]},
		"another total":             {flags: wire.FlagXattrs, bodies: [][]byte{cut[0], parts(0, attribute(1001), 400)[1]}},
		"after they were whole":     {flags: wire.FlagXattrs, bodies: [][]byte{parts(0, whole, 4000)[0], {0, 0x80, 0x10, 0x80, 0x10, 1, 'x'}}},
		"an empty part":             {flags: wire.FlagXattrs, bodies: [][]byte{{0, 5, 0, 0}}},
		"a part that is cut off":    {flags: wire.FlagXattrs, bodies: [][]byte{cut[0][:50]}},
		"too large":                 {flags: wire.FlagXattrs, bodies: [][]byte{{0, 0x81, 0x80, 0x40, 0, 1, 'x'}}},
		"an entry before its parts": {flags: wire.FlagXattrs, bodies: cut[:1], give: true},
		"no attributes":             {flags: wire.FlagXattrs, bodies: [][]byte{{0, 2, 0, 2, 200, 'x'}}, give: true},
	} {
		k := linkSink(tc.flags)
		if tc.before != nil {
			tc.before(k)
		}
		var err error
		for _, body := range tc.bodies {
			if err == nil {
				err = k.hearXattrs(body)
			}
		}
		if err == nil && tc.give {
			err = k.giveXattrs(linkEntry(0, "a", wire.FileNames{}))
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A source that announces attributes without end is cut off at the window.
func TestXattrsAreBounded(t *testing.T) {
	k := linkSink(wire.FlagXattrs)
	var err error
	n := 0
	for ; err == nil && n < 100; n++ {
		err = k.hearXattrs(append(wire.AppendUvarints(nil, uint64(n), fileset.MaxXattrsBytes, 0, 1), 'x'))
	}
	if want := wire.XattrWindow/fileset.MaxXattrsBytes + 1; !errors.Is(err, ErrProtocol) || n != want {
		t.Errorf("%d entries, want %d: %v", n, want, err)
	}
	if err := k.hearEnd(0); !errors.Is(err, ErrProtocol) {
		t.Errorf("an end before their entries: %v", err)
	}
}

func FuzzXattrParts(f *testing.F) {
	for _, body := range parts(3, attribute(500), 300) {
		f.Add(body)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		k := linkSink(wire.FlagXattrs)
		_ = k.hearXattrs(b)
		held := 0
		for _, x := range k.window.xattrs {
			held += x.total
			if len(x.bytes) > x.total || x.total > fileset.MaxXattrsBytes {
				t.Fatalf("%d bytes of %d", len(x.bytes), x.total)
			}
		}
		if held != k.window.xattrBytes || held > wire.XattrWindow {
			t.Fatalf("%d bytes are held, %d counted", held, k.window.xattrBytes)
		}
	})
}
