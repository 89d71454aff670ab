package xfer

import (
	"bytes"
	"reflect"
	"testing"

	"gdrcp/chunker"
	"gdrcp/internal/fileset"
	"gdrcp/internal/filter"
	"gdrcp/manifest"
	"gdrcp/xfer/internal/wire"
)

// TestOptionsAreSent: each option is either in the hello of a push or a pull, so that a server
// applies it, or is needed only by this end.
func TestOptionsAreSent(t *testing.T) {
	sent := map[string]func(o *Options){
		"Recursive":      func(o *Options) { o.Recursive = true },
		"Follow":         func(o *Options) { o.Follow = true },
		"OneFileSystem":  func(o *Options) { o.OneFileSystem = true },
		"Names":          func(o *Options) { o.Names = &chunker.List{} },
		"Rules":          func(o *Options) { o.Rules = []filter.Rule{{}} },
		"NoFsync":        func(o *Options) { o.NoFsync = true },
		"IO":             func(o *Options) { o.IO = fileset.IOBuffered },
		"Transfers":      func(o *Options) { o.Transfers = 2 },
		"NoResume":       func(o *Options) { o.NoResume = true },
		"Recheck":        func(o *Options) { o.Recheck = true },
		"PartialDir":     func(o *Options) { o.PartialDir = "/partial" },
		"VerifyWritten":  func(o *Options) { o.VerifyWritten = true },
		"CopyGrowing":    func(o *Options) { o.CopyGrowing = true },
		"Links":          func(o *Options) { o.Links = true },
		"Perms":          func(o *Options) { o.Perms = true },
		"Times":          func(o *Options) { o.Times = false },
		"Owner":          func(o *Options) { o.Owner = true },
		"Group":          func(o *Options) { o.Group = true },
		"NumericIDs":     func(o *Options) { o.NumericIDs = true },
		"HardLinks":      func(o *Options) { o.HardLinks = true },
		"Xattrs":         func(o *Options) { o.Xattrs = true },
		"ACLs":           func(o *Options) { o.ACLs = true },
		"DryRun":         func(o *Options) { o.DryRun = true },
		"NoSpaceCheck":   func(o *Options) { o.NoSpaceCheck = true },
		"IgnoreExisting": func(o *Options) { o.IgnoreExisting = true },
		"Existing":       func(o *Options) { o.Existing = true },
		"Update":         func(o *Options) { o.Update = true },
		"IgnoreTimes":    func(o *Options) { o.IgnoreTimes = true },
		"SizeOnly":       func(o *Options) { o.SizeOnly = true },
		"Whole":          func(o *Options) { o.Whole = true },
		"ForceReplace":   func(o *Options) { o.ForceReplace = true },
		"Checksum":       func(o *Options) { o.Checksum = true },
		"AppendVerify":   func(o *Options) { o.AppendVerify = true },
		"InPlace":        func(o *Options) { o.InPlace = true },
		"Delete":         func(o *Options) { o.Delete = true },
		"MinFileBytes":   func(o *Options) { o.MinFileBytes = 1 },
		"MaxFileBytes":   func(o *Options) { o.MaxFileBytes = 1 },
		"MaxDelete":      func(o *Options) { o.MaxDelete = 1 },
		"Require":        func(o *Options) { o.Require = "gpudirect" },
		"QPs":            func(o *Options) { o.QPs = 2 },
		"ChunkBytes":     func(o *Options) { o.ChunkBytes = 2 << 20 },
		"Slots":          func(o *Options) { o.Slots = 3 },
		"Hash":           func(o *Options) { o.Hash = manifest.SHA256 },
		"Compress":       func(o *Options) { o.Compress = CompressS2 },
		"RemoteGPU":      func(o *Options) { o.RemoteGPU = "off" },
		"GPUFlush":       func(o *Options) { o.GPUFlush = "always" },
		"Encrypt":        func(o *Options) { o.Encrypt = true },
		"Manifest":       func(o *Options) { o.Manifest = "m" }, // the sink reads back what arrived earlier
		"WriteManifest":  func(o *Options) { o.WriteManifest = "m" },
		"Tries":          func(o *Options) { o.Tries.again, o.Tries.goneOn = 1, "a" },

		"RequireAttributes": func(o *Options) { o.RequireAttributes = true },
	}
	kept := map[string]string{
		"Unfit":          "the source of a push asks it",
		"BasisManifest":  "the sink of a pull reads it",
		"DeleteExcluded": "it becomes Delete, and rules",
		"Transport":      "this end dials", "Rail": "this end dials", "MoreRails": "this end dials", "RemoteRail": "this end dials", "Rails": "this end dials",
		"MostSlots":      "Slots follow from it",
		"Privileged":     "the sink of a pull asks it",
		"GPU":            "this end's slots; with it Hash and flags change",
		"BytesPerSecond": "either end of a session holds to it, and slows the other down",
		"Stall":          "this end watches progress",
		"ForceImmSend":   "the other end takes either kind", "Wire": "this end's packets",
		"Started": "of this process", "Timeouts": "each end has its own", "Report": "of this process", "Tally": "of this process",
	}
	for field := range reflect.TypeFor[Options]().Fields() {
		if !field.IsExported() {
			continue
		}
		set, why := sent[field.Name], kept[field.Name]
		if (set == nil) == (why == "") {
			t.Errorf("%s: either the hello has it, or there is a reason why not", field.Name)
		}
		if set != nil && bytes.Equal(helloWith(t, set), helloWith(t, func(*Options) {})) {
			t.Errorf("%s: the server does not learn of it", field.Name)
		}
	}
	if n := reflect.TypeFor[Options](); len(sent)+len(kept) > n.NumField() {
		t.Errorf("%d fields are listed, and there are %d", len(sent)+len(kept), n.NumField())
	}
}

func helloWith(t *testing.T, set func(o *Options)) []byte {
	t.Helper()
	o := &Options{Tries: &Tries{}, RemoteGPU: "auto", Times: true}
	set(o)
	o.complete()
	h, err := o.hello(wire.ModePush)
	if err != nil {
		t.Fatal(err)
	}
	return h.Encode()
}
