package dest

import (
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/internal/fsys"
)

// What an ACL gives to the owning group is for the source's group. If a file does not get that
// group, the group that it has and all others get what both had.
func TestACLOfAnotherGroup(t *testing.T) {
	needsRoot(t)
	acl := fsys.ACL{
		{Tag: fsys.ACLUserObj, Perm: 7, ID: fsys.NoID}, {Tag: fsys.ACLUser, Perm: 6, ID: 12}, {Tag: fsys.ACLGroupObj, Perm: 6, ID: fsys.NoID},
		{Tag: fsys.ACLMask, Perm: 7, ID: fsys.NoID}, {Tag: fsys.ACLOther, Perm: 5, ID: fsys.NoID},
	}
	a := &Attributes{UID: -1, GID: 34, ACLs: fsys.ACLs{Access: acl}}
	for gid, want := range map[uint32][2]uint16{34: {6, 5}, 35: {4, 4}} {
		got := a.access(&unix.Stat_t{Gid: gid})
		if got[2].Perm != want[0] || got[4].Perm != want[1] || got[1].Perm != 6 || got[3].Perm != 7 {
			t.Errorf("group %d: %v", gid, got)
		}
	}
	if acl[2].Perm != 6 {
		t.Error("the ACL itself was changed")
	}
}
