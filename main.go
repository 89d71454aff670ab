// Command gdrcp copies files and directory trees between hosts over RDMA or
// TCP and verifies every piece of them.
package main

import (
	"os"

	"gdrcp/internal/cli"
)

// version is set when the program is linked.
var version string

func main() { os.Exit(cli.Main(version)) }
