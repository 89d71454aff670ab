package lint

import (
	"os"
	"regexp"
	"testing"
)

// theMatch returns the text of a pattern's group in a file. All matches must be equal.
func theMatch(t *testing.T, file, pattern string) string {
	t.Helper()
	text, err := os.ReadFile("../../" + file)
	if err != nil {
		t.Fatal(err)
	}
	all := regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1)
	if len(all) == 0 {
		t.Fatalf("%s has nothing like %s", file, pattern)
	}
	for _, m := range all {
		if m[1] != all[0][1] {
			t.Errorf("%s has %s and %s for %s", file, all[0][1], m[1], pattern)
		}
	}
	return all[0][1]
}

// The versions in the papers are those of the code.
func TestPapersStateTheVersions(t *testing.T) {
	const protocol = "docs/design/protocol.md"
	for _, c := range []struct{ paper, says, file, constant string }{
		{protocol, `\(engine (\d+), `, "xfer/internal/wire/door.go", "ProtocolVersion"},
		{protocol, ` 4   2  protocol version: (\d+)\n`, "xfer/internal/wire/door.go", "ProtocolVersion"},
		{"CHANGELOG.md", `Protocol version (\d+),`, "xfer/internal/wire/door.go", "ProtocolVersion"},
		{protocol, `, tcp (\d+), `, "rdma/tcp/preface.go", "version"},
		{protocol, `\n 8   2  version: (\d+)\n`, "rdma/tcp/preface.go", "version"},
		{protocol, `, verbs (\d+)\)`, "rdma/verbs/wire.go", "wireVersion"},
		{protocol, `\n4  1  version: (\d+)\n`, "rdma/verbs/wire.go", "wireVersion"},
		{protocol, `another version of\s+the set-up \(today (\d+)\)`, "internal/remote/messages.go", "setUpVersion"},
	} {
		want := theMatch(t, c.file, `(?m)^(?:const |\t)`+c.constant+` += (\d+)`)
		if got := theMatch(t, c.paper, c.says); got != want {
			t.Errorf("%s says %s for %s, and %s of %s is %s", c.paper, got, c.says, c.constant, c.file, want)
		}
	}
}
