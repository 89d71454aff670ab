package wire

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"gdrcp/manifest"
)

func TestEntriesRoundTrip(t *testing.T) {
	want := []AnnouncedEntry{
		{Entry: manifest.Entry{Type: manifest.Dir, Path: ".", Mode: 0o755, MtimeNs: -5}},
		{Entry: manifest.Entry{Type: manifest.File, Path: "a\n\xff b", Size: 1 << 50, Mode: 0o4644, MtimeNs: 1 << 60}, Sparse: true, AllocBytes: 4096},
		{Entry: manifest.Entry{Type: manifest.File, Path: strings.Repeat("d/", 2000) + "f", Size: 3}, AllocBytes: 3},
		{Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: strings.Repeat("x", 4095), Mode: 0o777}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "m"}, Owners: Owners{HasUID: true, HasGID: true, UID: 1<<32 - 2, User: "DOMAIN\\a b", Group: strings.Repeat("g", MaxAccountNameBytes)}},
		{Entry: manifest.Entry{Type: manifest.File, Path: "m/x"}, Names: FileNames{Several: true, First: 1 << 40, Left: 1 << 60}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "n"}, Owners: Owners{HasGID: true, GID: 7}},
		{Entry: manifest.Entry{Type: manifest.Dir, Path: "o"}, Elsewhere: true},
		{Entry: manifest.Entry{Type: manifest.File, Path: "s", Size: StreamBytes, Mode: 0o666, MtimeNs: 7}, Stream: true},
	}
	b := []byte{42}
	var scratch Writer
	for i := range want {
		b = AppendEntry(b, &want[i], &scratch)
	}
	var got []AnnouncedEntry
	err := DecodeEntries(b, func(id uint64, e *AnnouncedEntry) error {
		if id != uint64(42+len(got)) {
			t.Errorf("entry %d has id %d", len(got), id)
		}
		got = append(got, *e)
		return nil
	})
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, err)
	}
	if len(b) > MaxBodyBytes {
		t.Errorf("%d bytes", len(b))
	}
}

func TestBadEntries(t *testing.T) {
	for name, e := range map[string]AnnouncedEntry{
		"absolute":     {Entry: manifest.Entry{Type: manifest.File, Path: "/etc/passwd"}},
		"dotdot":       {Entry: manifest.Entry{Type: manifest.File, Path: "a/../../b"}},
		"empty":        {Entry: manifest.Entry{Type: manifest.File}},
		"nul":          {Entry: manifest.Entry{Type: manifest.File, Path: "a\x00b"}},
		"top file":     {Entry: manifest.Entry{Type: manifest.File, Path: "."}},
		"dir size":     {Entry: manifest.Entry{Type: manifest.Dir, Path: "d", Size: 1}},
		"no target":    {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l"}},
		"long target":  {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: strings.Repeat("x", 4096)}},
		"unknown type": {Entry: manifest.Entry{Type: 'x', Path: "p"}},
		"huge":         {Entry: manifest.Entry{Type: manifest.File, Path: "p", Size: -1}},
		"mode":         {Entry: manifest.Entry{Type: manifest.File, Path: "p", Mode: 1 << 20}},
		"no file":      {Entry: manifest.Entry{Type: manifest.Dir, Path: "p"}, Names: FileNames{Several: true, Left: 1}},
		"owner":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Owners: Owners{HasUID: true, UID: 1<<32 - 1}},
		"group":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Owners: Owners{HasGID: true, GID: 1<<32 - 1}},
		"long name":    {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Owners: Owners{User: strings.Repeat("u", MaxAccountNameBytes+1)}},
		"name":         {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Owners: Owners{Group: "a:b"}},
		"nul in name":  {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Owners: Owners{User: "root\x00x"}},
		"dir stream":   {Entry: manifest.Entry{Type: manifest.Dir, Path: "d"}, Stream: true},
		"link stream":  {Entry: manifest.Entry{Type: manifest.Symlink, Path: "l", Target: "x"}, Stream: true},
		"elsewhere":    {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Elsewhere: true},
		"sparse":       {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Stream: true, Sparse: true},
		"names":        {Entry: manifest.Entry{Type: manifest.File, Path: "p"}, Stream: true, Names: FileNames{Several: true, First: 3, Left: 4}},
	} {
		var scratch Writer
		b := AppendEntry([]byte{0}, &e, &scratch)
		if err := DecodeEntries(b, func(uint64, *AnnouncedEntry) error { return nil }); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
