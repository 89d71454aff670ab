package chunker

import (
	"strings"

	"gdrcp/manifest"
)

// checkPath refuses a path that no entry may have, with ErrEscape.
func checkPath(op, path string) error {
	if err := manifest.CheckPath(path); err != nil {
		return &opError{op: op, path: path, kind: ErrEscape, err: err}
	}
	return nil
}

// checkName refuses a name that no single component may have.
func checkName(op, name string) error {
	if name == "." || strings.IndexByte(name, '/') >= 0 {
		return kindErr(op, name, ErrEscape)
	}
	return checkPath(op, name)
}
