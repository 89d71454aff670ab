package lint

import (
	"os"
	"strings"
	"testing"
)

// the engine and all packages below it.
var everything = []string{"rdma", "rdma/verbs", "rdma/tcp", "rdma/rdmatest", "gpu", "internal/dirsync", "internal/fileset", "internal/fsys", "chunker", "chunker/dest", "internal/audit", "internal/filter", "internal/numa", "internal/pattern", "manifest", "internal/trust", "internal/inherited", "internal/served", "internal/backlog", "internal/remote", "internal/printable", "xfer"}

// projectRules are the import rules of docs/design/architecture.md: imports go in one
// direction, from the command line through the engine to the leaves.
var projectRules = Rules{
	Module: "gdrcp",
	Imports: map[string][]string{
		".":                         {"internal/cli"},
		"internal/cli":              append([]string{"internal/cli/args", "internal/cmdline"}, everything...),
		"xfer":                      {"rdma", "gpu", "chunker", "chunker/dest", "internal/fileset", "internal/filter", "internal/fsys", "internal/numa", "internal/pattern", "manifest", "internal/trust", "internal/printable", "xfer/internal/credit", "xfer/internal/door", "xfer/internal/fault", "xfer/internal/flow", "xfer/internal/limit", "xfer/internal/link", "xfer/internal/result", "xfer/internal/ring", "xfer/internal/stat", "xfer/internal/wire"}, // no provider: internal/cli passes it
		"xfer/internal/credit":      {},
		"xfer/internal/stat":        {},
		"xfer/internal/limit":       {},
		"xfer/internal/fault":       {"rdma", "internal/fileset", "internal/fsys", "internal/printable", "internal/trust", "xfer/internal/door", "xfer/internal/wire"},
		"xfer/internal/result":      {"rdma", "internal/fileset", "manifest", "xfer/internal/wire"},
		"xfer/internal/link":        {"rdma", "gpu", "internal/numa", "internal/trust", "xfer/internal/credit", "xfer/internal/fault", "xfer/internal/result", "xfer/internal/ring", "xfer/internal/wire"},
		"xfer/internal/flow":        {"rdma", "chunker", "internal/filter", "internal/numa", "internal/trust", "xfer/internal/credit", "xfer/internal/fault", "xfer/internal/limit", "xfer/internal/link", "xfer/internal/result", "xfer/internal/ring", "xfer/internal/stat", "xfer/internal/wire"},
		"xfer/internal/door":        {"rdma", "internal/printable", "internal/trust", "xfer/internal/limit", "xfer/internal/wire"},
		"xfer/internal/ring":        {"rdma", "gpu", "internal/numa", "manifest", "xfer/internal/wire"},
		"xfer/internal/wire":        {"internal/fileset", "internal/filter", "internal/printable", "internal/trust", "manifest"},
		"rdma":                      {},
		"rdma/verbs":                {"internal/numa", "rdma"},
		"rdma/tcp":                  {"internal/backlog", "rdma"},
		"rdma/rdmatest":             {"rdma"},
		"gpu":                       {},
		"internal/dirsync":          {},
		"internal/fileset":          {"internal/fsys", "manifest"},
		"internal/fsys":             {},
		"chunker/internal/sorted":   {"internal/fsys"},
		"chunker/internal/dirs":     {"internal/fsys", "manifest"},
		"chunker/internal/parallel": {},
		"chunker":                   {"chunker/internal/dirs", "chunker/internal/parallel", "chunker/internal/sorted", "internal/fileset", "internal/fsys", "manifest"},
		"chunker/dest":              {"chunker", "chunker/internal/dirs", "chunker/internal/parallel", "chunker/internal/sorted", "internal/dirsync", "internal/fileset", "internal/fsys", "manifest"},
		"internal/filter":           {},
		"internal/audit":            {"chunker", "internal/fileset", "internal/filter", "manifest"}, // not the engine: an audit has no peer
		"manifest":                  {"internal/dirsync"},
		"internal/cli/args":         {"internal/printable"},
		"internal/printable":        {},
		"internal/cmdline":          {},
		"internal/trust":            {"internal/dirsync"},
		"internal/inherited":        {},
		"internal/fusetest":         {},                // for tests
		"internal/disktest":         {},                // for tests
		"internal/treetest":         {"internal/fsys"}, // for tests
		"internal/served":           {"internal/fsys"},
		"internal/numa":             {},
		"internal/numa/numatest":    {}, // for tests
		"internal/pattern":          {},
		"internal/backlog":          {},
		"internal/remote":           {"internal/backlog", "internal/pattern", "internal/trust"},
		"tests":                     everything,

		"xfer/internal/credit/credittest": {"xfer/internal/credit"},
	},
	TestImports: map[string][]string{
		"internal/cli":          {"gpu/gputest", "internal/fusetest", "internal/disktest"},
		"chunker":               {"internal/fusetest", "internal/disktest", "internal/treetest"},
		"chunker/dest":          {"internal/fusetest", "internal/disktest", "internal/treetest"},
		"chunker/internal/dirs": {"internal/treetest"},
		"internal/fileset":      {"internal/treetest"},
		"internal/audit":        {"internal/fusetest"},
		"rdma/verbs":            {"rdma/rdmatest"},
		"rdma/tcp":              {"rdma/rdmatest"},
		// The fault-injecting wrapper and the engine are tested over the provider that
		// needs no device.
		"rdma/rdmatest": {"rdma/tcp"},
		// A pipe carries the same data as the provider of sockets.
		"internal/remote": {"rdma", "rdma/tcp", "rdma/rdmatest", "internal/fusetest"},
		// Copies are compared with the results of an audit.
		"xfer":               {"rdma/tcp", "rdma/verbs", "rdma/rdmatest", "gpu/gputest", "internal/audit", "internal/fusetest", "internal/disktest", "internal/numa/numatest", "xfer/internal/credit/credittest"},
		"xfer/internal/ring": {"rdma/tcp", "gpu/gputest", "internal/numa/numatest"},
		"internal/numa":      {"internal/numa/numatest"},
		"xfer/internal/door": {"rdma/rdmatest", "rdma/tcp"},
		// The check of traces is tested on traces of the model.
		"xfer/internal/credit": {"xfer/internal/credit/credittest"},
		// Digests of the device are compared with those of the processor.
		"gpu":   {"gpu/gputest", "manifest"},
		"tests": {"gpu/gputest", "internal/fusetest", "tests/launch"},
	},
	Only: map[string][]string{
		"C":                          {"rdma/verbs", "gpu", "internal/inherited"},
		"unsafe":                     {"rdma/verbs", "gpu", "gpu/gputest", "internal/numa", "internal/numa/numatest"},
		"github.com/hanwen/go-fuse":  {"internal/fusetest", "chunker/dest", "internal/cli", "tests/program"}, // their tests
		"github.com/hashicorp/yamux": {"internal/remote"},
		"github.com/urfave/cli":      {"internal/cli", "internal/cli/args"},
	},
	BannedNames: []string{"util", "utils", "common", "helper", "helpers", "misc"},
	MaxLines:    450,
}

func TestProjectKeepsItsRules(t *testing.T) {
	root := os.DirFS("../..")
	mod, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(string(mod), "module "+projectRules.Module+"\n") {
		t.Fatalf("go.mod names another module than %s", projectRules.Module)
	}
	found, err := Check(root, projectRules)
	if err != nil {
		t.Fatal(err)
	}
	for _, line := range found {
		t.Error(line)
	}
}
