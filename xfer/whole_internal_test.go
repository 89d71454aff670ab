package xfer

import (
	"errors"
	"testing"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"
)

// A source accepts the sink's report whether a tree has its name, but no contradiction.
func TestEndOfAWholeTree(t *testing.T) {
	for name, c := range map[string]struct {
		failed   int64 // entries, as the source knows
		change   func(body []byte) []byte
		withheld bool
		want     error
	}{
		"named":                            {0, func(b []byte) []byte { return wire.AppendNamed(b, true) }, false, nil},
		"not named, because one failed":    {1, func(b []byte) []byte { return wire.AppendNamed(b, false) }, true, nil},
		"not named, and nobody knows why":  {0, func(b []byte) []byte { return wire.AppendNamed(b, false) }, false, ErrProtocol},
		"not named, with other roots":      {0, func(b []byte) []byte { b[0]++; return wire.AppendNamed(b, false) }, true, nil},
		"named or not":                     {0, func(b []byte) []byte { return b }, false, ErrProtocol},
		"neither":                          {0, func(b []byte) []byte { return append(b, 2) }, false, ErrProtocol},
		"nothing":                          {0, func([]byte) []byte { return nil }, false, ErrProtocol},
		"half of the roots, and it is one": {0, func(b []byte) []byte { return wire.AppendNamed(b[:40], true) }, false, ErrProtocol},
	} {
		a := tryOf(t, nil, wire.FlagWhole)
		settled(t, a, "a", nil)
		a.late[Failed] = c.failed
		src := &source{Session: &flow.Session{Session: &link.Session{}, Terms: wire.Terms{Flags: wire.FlagWhole}}, results: a}
		roots := a.finish()
		_, err := src.hearDone(c.change(roots.Encode()))
		if !errors.Is(err, c.want) || c.want == nil && err != nil || a.withheld != c.withheld {
			t.Errorf("%s: withheld %v, %v", name, a.withheld, err)
		}
	}
}

// Options about existing files do not go with a tree that is new.
func TestWholeProblems(t *testing.T) {
	good := Options{Whole: true, Recursive: true, Times: true, Perms: true, SizeOnly: true, HardLinks: true, NoFsync: true}
	if why := good.wholeProblem(); why != "" {
		t.Error(why)
	}
	for name, change := range map[string]func(o *Options){
		"no -r": func(o *Options) { o.Recursive = false }, "--delete": func(o *Options) { o.Delete = true }, "-u": func(o *Options) { o.Update = true },
		"--existing": func(o *Options) { o.Existing = true }, "--ignore-existing": func(o *Options) { o.IgnoreExisting = true },
		"--max-size": func(o *Options) { o.MaxFileBytes = -1 }, "--min-size": func(o *Options) { o.MinFileBytes = 1 },
		"--checksum": func(o *Options) { o.Checksum = true }, "--inplace": func(o *Options) { o.InPlace = true }, "--append-verify": func(o *Options) { o.AppendVerify = true },
	} {
		o := good
		change(&o)
		if o.wholeProblem() == "" {
			t.Errorf("%s is taken", name)
		}
	}
}
