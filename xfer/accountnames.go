package xfer

import (
	"os/user"
	"strconv"

	"gdrcp/xfer/internal/wire"
)

// maxAccountNames bounds each table of accountNames: a peer may name any number of users.
const maxAccountNames = 1024

// accountNames looks up users and groups of this host. It looks up each once, because a look-up may
// ask a directory service. Only one goroutine may use it.
type accountNames struct {
	users, groups map[uint32]string
	uids, gids    map[string]int // -1: this host has no such name
}

// user returns the name of a user. It is empty if the user has no name, or none that can be sent.
func (n *accountNames) user(uid uint32) string {
	return remembered(&n.users, uid, func() string {
		u, err := user.LookupId(strconv.FormatUint(uint64(uid), 10))
		if err != nil || !wire.IsAccountName(u.Username) {
			return ""
		}
		return u.Username
	})
}

func (n *accountNames) group(gid uint32) string {
	return remembered(&n.groups, gid, func() string {
		g, err := user.LookupGroupId(strconv.FormatUint(uint64(gid), 10))
		if err != nil || !wire.IsAccountName(g.Name) {
			return ""
		}
		return g.Name
	})
}

// uid returns the number of the user of that name on this host, or other if this host has no such
// user.
func (n *accountNames) uid(name string, other uint32) int {
	id := remembered(&n.uids, name, func() int {
		u, err := user.Lookup(name)
		if err != nil {
			return -1
		}
		return accountID(u.Uid)
	})
	if id < 0 {
		return int(other)
	}
	return id
}

func (n *accountNames) gid(name string, other uint32) int {
	id := remembered(&n.gids, name, func() int {
		g, err := user.LookupGroup(name)
		if err != nil {
			return -1
		}
		return accountID(g.Gid)
	})
	if id < 0 {
		return int(other)
	}
	return id
}

// accountID parses a number as package user returns it. It is -1 if s is no number.
func accountID(s string) int {
	id, err := strconv.ParseUint(s, 10, 32)
	if err != nil {
		return -1
	}
	return int(id)
}

// remembered returns the result of find for key, from the table if it is there. A full table is
// emptied first.
func remembered[K comparable, V any](table *map[K]V, key K, find func() V) V {
	if v, ok := (*table)[key]; ok {
		return v
	}
	v := find()
	if *table == nil || len(*table) >= maxAccountNames {
		*table = make(map[K]V)
	}
	(*table)[key] = v
	return v
}
