package chunker

import (
	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/manifest"
)

// UserXattrsOnly makes Xattrs read only the attributes of the user namespace. Those of others
// may hold what a process that runs as root keeps from users (trusted, security). Call it
// before Walk.
func (t *Tree) UserXattrsOnly(only bool) { t.userXattrsOnly = only }

// Xattrs reads the extended attributes of an entry that Walk found, except ACLs and what
// else is the system's. It opens a regular file or directory for that. It leaves out
// attributes that cannot be read, unless lacks, which is called with each, returns an error.
func (t *Tree) Xattrs(f *Found, lacks func(attribute string, err error) error) (fileset.Xattrs, error) {
	path := f.Entry.Path
	parent, leaf, err := t.locate(path)
	if err != nil {
		return nil, t.lost("read extended attributes of", path, err)
	}
	defer parent.release()
	var calls fsys.XattrCalls
	if f.Entry.Type == manifest.Symlink {
		calls = fsys.XattrsOfLink(parent.fd, leaf)
	} else {
		open := t.openFile
		if f.Entry.Type == manifest.Dir {
			open = func(parent *keptDir, leaf, path string) (int, error) {
				return t.openEntry(parent, leaf, path, unix.O_RDONLY|unix.O_DIRECTORY)
			}
		}
		fd, err := open(parent, leaf, path)
		if err != nil {
			return nil, t.lost("open", path, err)
		}
		defer fsys.CloseQuietly(fd)
		calls = fsys.XattrsOfFD(fd)
	}
	x, err := readWhatCanBe(&calls, t.userXattrsOnly, lacks)
	return x, opErr("read extended attributes of", path, err)
}
