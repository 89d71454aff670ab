package chunker

import (
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fusetest"
	"gdrcp/internal/treetest"
)

// TestChangeTimesTell: which stamps stand for a content, by the file system.
func TestChangeTimesTell(t *testing.T) {
	equal, whole := fileset.Stamp{MtimeNs: 5e9 + 1, CtimeNs: 5e9 + 1}, fileset.Stamp{MtimeNs: 5e9, CtimeNs: 5e9}
	later, none := fileset.Stamp{MtimeNs: 5e9, CtimeNs: 5e9 + 1}, fileset.Stamp{MtimeNs: 5e9}
	for _, c := range []struct {
		name                      string
		fsType                    uint32
		equal, whole, later, none bool
	}{
		{"ext4", unix.EXT4_SUPER_MAGIC, true, true, true, true},
		{"NFS", unix.NFS_SUPER_MAGIC, true, true, true, true},
		{"overlayfs", unix.OVERLAYFS_SUPER_MAGIC, true, false, true, false},
		{"FUSE", unix.FUSE_SUPER_MAGIC, false, false, true, false},
		{"CIFS", unix.CIFS_SUPER_MAGIC, false, false, true, false},
		{"squashfs", unix.SQUASHFS_MAGIC, false, false, true, false},
		{"unknown", 0, false, false, true, false},
	} {
		of := changeTimesOf(c.fsType)
		if of.tell(equal) != c.equal || of.tell(whole) != c.whole || of.tell(later) != c.later || of.tell(none) != c.none {
			t.Errorf("%s: %v, %v, %v, %v", c.name, of.tell(equal), of.tell(whole), of.tell(later), of.tell(none))
		}
	}
}

// TestTellsContent: the file system is that of the file itself.
func TestTellsContent(t *testing.T) {
	below := t.TempDir()
	treetest.MakeTree(t, below, "f=content", "l>f")
	tree := openLocal(t, false, Source{Path: fusetest.MountImage(t, below), Name: "."})
	for range 2 {
		if a, err := tree.lookUp("f"); err != nil || tree.TellsContent("f", a.stamp) {
			t.Errorf("a file of an image tells: %+v, %v", a.stamp, err)
		}
	}
	if tree.TellsContent("none", fileset.Stamp{CtimeNs: 1}) {
		t.Error("a file that is not there tells")
	}
}
