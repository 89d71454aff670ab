package chunker

import (
	"crypto/sha256"
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// A copy that lost its connection continues with another process, which may have another
// directory at the same path. So each attempt compares the identity of the directories that
// it works in with those of the attempt before.

// rootIDBytes is the length of an identity.
const rootIDBytes = 16

// RootID identifies the directory that the copy goes into: by its file system, inode and,
// where the file system records it, time of birth. It does not depend on the process. It is
// empty if the directory cannot be identified.
func (s *Sink) RootID() string { return rootIDOf(s.base.fd) }

// maxSourcesIdentified bounds how many of several sources RootID looks at.
const maxSourcesIdentified = 256

// RootID identifies the source, as Sink.RootID does the destination: the directory at the top
// of the tree, or else the files and directories that are its sources, the first ones if they
// are very many.
func (t *Tree) RootID() string {
	if t.isTop {
		h, err := t.dirs.get(".")
		if err != nil {
			return ""
		}
		defer h.release()
		return rootIDOf(h.fd)
	}
	var b []byte
	for _, s := range t.sources[:min(len(t.sources), maxSourcesIdentified)] {
		a, err := t.lookUp(s.Name)
		if err != nil {
			a = attributes{} // it counts as nothing, and the walk reports it
		}
		b = binary.LittleEndian.AppendUint64(b, a.stamp.Dev)
		b = binary.LittleEndian.AppendUint64(b, a.stamp.Ino)
	}
	return rootIDFrom(b)
}

func rootIDOf(fd int) string {
	fs := statfs(fd) // of a file system that does not answer the inode has to do
	var x unix.Statx_t
	err := uninterrupted(func() error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_INO|unix.STATX_BTIME, &x)
	})
	if err != nil { // no such call here, or a seccomp filter that is older
		var st unix.Stat_t
		if fstat(fd, &st) != nil {
			return ""
		}
		x = unix.Statx_t{Ino: st.Ino, Dev_major: unix.Major(st.Dev), Dev_minor: unix.Minor(st.Dev)}
	}
	if x.Mask&unix.STATX_BTIME == 0 {
		x.Btime = unix.StatxTimestamp{}
	}
	var b []byte
	for _, u := range []uint64{
		uint64(fs.Type), uint64(uint32(fs.Fsid.Val[0])), uint64(uint32(fs.Fsid.Val[1])),
		unix.Mkdev(x.Dev_major, x.Dev_minor), x.Ino, uint64(x.Btime.Sec), uint64(x.Btime.Nsec),
	} {
		b = binary.LittleEndian.AppendUint64(b, u)
	}
	return rootIDFrom(b)
}

func rootIDFrom(b []byte) string {
	sum := sha256.Sum256(append([]byte("gdrcp root 1"), b...))
	return string(sum[:rootIDBytes])
}
