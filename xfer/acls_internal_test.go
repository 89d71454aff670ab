package xfer

import (
	"encoding/binary"
	"errors"
	"os/user"
	"slices"
	"testing"

	"gdrcp/internal/fileset"
	"gdrcp/internal/fsys"
	"gdrcp/xfer/internal/wire"
)

// anACL encodes entries of tag, rights and, for a particular user or group, number and name.
func anACL(entries ...any) (b []byte) {
	for _, x := range entries {
		switch x := x.(type) {
		case int:
			b = binary.AppendUvarint(b, uint64(x))
		case string:
			b = append(binary.AppendUvarint(b, uint64(len(x))), x...)
		}
	}
	return b
}

// An ACL arrives with the numbers of this host, by name if it has the name, and only in a form that
// the kernel accepts.
func TestACLsArrive(t *testing.T) {
	daemon, err := user.Lookup("daemon")
	if err != nil {
		t.Skip(err)
	}
	id := uint32(accountID(daemon.Uid))
	with := func(flags uint64, x fileset.Xattrs) (fsys.ACLs, error) {
		k := linkSink(flags)
		for _, body := range parts(0, x, 100) {
			if err := k.hearXattrs(body); err != nil {
				return fsys.ACLs{}, err
			}
		}
		e := linkEntry(0, "a", wire.FileNames{})
		err := k.giveXattrs(e)
		if err != nil {
			return fsys.ACLs{}, err
		}
		return e.attrs.ACLs, nil
	}
	named := anACL(1, 6, 2, 4, 4242, "daemon", 2, 4, 0, "daemon", 2, 0, 4243, "no such user", 4, 0, 16, 4, 32, 0)
	for flags, first := range map[uint64]uint32{wire.FlagACLs: id, wire.FlagACLs | wire.FlagNumericIDs: 4242} {
		is, err := with(flags, fileset.Xattrs(nil).Append(fsys.AccessACL, named).Append(fsys.DefaultACL, anACL(1, 7, 4, 0, 32, 0)))
		if err != nil {
			t.Fatal(err)
		}
		ids := []uint32{is.Access[1].ID, is.Access[2].ID, is.Access[3].ID}
		if want := []uint32{first, 0, 4243}; !slices.Equal(ids, want) || len(is.Access) != 7 || len(is.Default) != 3 {
			t.Errorf("%v, want the numbers %v", is, want)
		}
	}
	many := anACL(1, 6)
	for i := range fsys.MaxACLEntries {
		many = append(many, anACL(2, 4, i+1, "")...)
	}
	for name, value := range map[string][]byte{
		"no owner": anACL(4, 0, 32, 0), "no mask": anACL(1, 6, 2, 4, 9, "", 4, 0, 32, 0), "rights": anACL(1, 8, 4, 0, 32, 0), "order": anACL(4, 0, 1, 6, 32, 0),
		"two owners": anACL(1, 6, 1, 6, 4, 0, 32, 0), "tag": anACL(1, 6, 3, 0, 4, 0, 32, 0), "large tag": anACL(1, 6, 4, 0, 32, 0, 1<<17, 0), "cut": anACL(1, 6, 4, 0, 32),
		"number": anACL(1, 6, 2, 4, 1<<32-1, "", 4, 0, 16, 4, 32, 0), "name": anACL(1, 6, 2, 4, 9, "a:b", 4, 0, 16, 4, 32, 0), "many": append(many, anACL(4, 0, 16, 4, 32, 0)...),
	} {
		if _, err := with(wire.FlagACLs, fileset.Xattrs(nil).Append(fsys.AccessACL, value)); !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Without -A they are attributes that no sink sets.
	if is, err := with(wire.FlagXattrs, fileset.Xattrs(nil).Append(fsys.AccessACL, named)); err != nil || !is.IsNone() {
		t.Errorf("not asked for: %v, %v", is, err)
	}
}
