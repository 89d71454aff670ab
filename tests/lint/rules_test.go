package lint

import (
	"os"
	"strings"
	"testing"
)

// everything that the engine and the packages below it consist of.
var everything = []string{"rdma", "rdma/verbs", "rdma/tcp", "rdma/rdmatest", "gpu", "dirsync", "chunker", "filter", "pattern", "manifest", "trust", "inherited", "served", "backlog", "remote", "xfer"}

// projectRules are the import rules of docs/design/architecture.md: imports point one way,
// from main through the engine to the leaves.
var projectRules = Rules{
	Module: "gdrcp",
	Imports: map[string][]string{
		".":             append([]string{"cmdline"}, everything...),
		"xfer":          {"rdma", "gpu", "chunker", "filter", "pattern", "manifest", "trust"}, // no provider: main hands it in
		"rdma":          {},
		"rdma/verbs":    {"rdma"},
		"rdma/tcp":      {"backlog", "rdma"},
		"rdma/rdmatest": {"rdma"},
		"gpu":           {},
		"dirsync":       {},
		"chunker":       {"dirsync", "manifest"},
		"filter":        {},
		"manifest":      {"dirsync"},
		"cmdline":       {},
		"trust":         {"dirsync"},
		"inherited":     {},
		"served":        {},
		"pattern":       {},
		"backlog":       {},
		"remote":        {"backlog", "pattern", "trust"},
		"tests":         everything,
	},
	TestImports: map[string][]string{
		".":          {"gpu/gputest"},
		"rdma/verbs": {"rdma/rdmatest"},
		"rdma/tcp":   {"rdma/rdmatest"},
		// The fault-injecting wrapper and the engine are tried over the provider that needs no device.
		"rdma/rdmatest": {"rdma/tcp"},
		// A pipe carries what the provider of sockets does.
		"remote": {"rdma", "rdma/tcp", "rdma/rdmatest"},
		"xfer":   {"rdma/tcp", "rdma/verbs", "rdma/rdmatest", "gpu/gputest"},
		// Digests of the device are compared with those of the processor.
		"gpu":   {"gpu/gputest", "manifest"},
		"tests": {"gpu/gputest"},
	},
	Only: map[string][]string{
		"C":                          {"rdma/verbs", "gpu", "inherited"},
		"unsafe":                     {"rdma/verbs", "gpu", "gpu/gputest"},
		"github.com/hanwen/go-fuse":  {"chunker", "."}, // their tests
		"github.com/hashicorp/yamux": {"remote"},
		"github.com/urfave/cli":      {"."},
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
