package fileset

import (
	"errors"
	"strings"

	"gdrcp/manifest"
)

// CheckPartialDir refuses an invalid directory for partial files: it must be an
// absolute path, or a single name.
func CheckPartialDir(dir string) error {
	if strings.HasPrefix(dir, "/") {
		if _, leaf := CutLeaf(strings.TrimRight(dir, "/")); leaf == "." || strings.IndexByte(dir, 0) >= 0 {
			return errors.New("not the path of a directory with a name")
		}
		return nil
	}
	if dir == "." || dir == ".." || strings.IndexByte(dir, '/') >= 0 || manifest.CheckPath(dir) != nil {
		return errors.New("neither an absolute path nor a single name")
	}
	if IsReserved([]byte(dir)) {
		return ErrReserved
	}
	return nil
}
