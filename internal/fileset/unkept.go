package fileset

import (
	"math"
	"slices"
)

// Unkept counts the entries of one file system that lack one attribute of their sources.
type Unkept struct {
	Attribute string // a word or two, or the name of an extended attribute
	// Dir is the directory in which the sink first met the file system, as a path in the
	// tree. It is "." for the file system of the destination itself.
	Dir     string
	Entries int64
	First   string // path of the first of the entries
	Reason  string // the error for that entry
	AtLeast bool   // Entries is a lower bound: several attempts counted, some of them the same entries
}

// The attributes other than extended ones, and the name for all those beyond
// the bound of a list.
const (
	AttributeOwner  = "owner or group"
	AttributeMode   = "mode"
	AttributeACL    = "ACL"
	AttributeTime   = "time"
	AttributeLinks  = "hard links"
	AttributeXattrs = "extended attributes"
	otherAttributes = "other attributes"
)

// maxUnkept bounds an UnkeptList, because the source chooses the names of
// extended attributes.
const maxUnkept = 64

// UnkeptList lists what a copy could not keep, once for each attribute and file
// system. Its size is bounded.
type UnkeptList []Unkept

// Add adds more entries. The path and reason of the first one are kept.
func (l *UnkeptList) Add(u Unkept) {
	if l.count(&u) {
		return
	}
	if len(*l) >= maxUnkept {
		u.Attribute, u.Dir = otherAttributes, "."
		if l.count(&u) {
			return
		}
	}
	*l = append(*l, u)
}

// of returns the list's element for the same attribute and file system, or nil.
func (l *UnkeptList) of(u *Unkept) *Unkept {
	for i := range *l {
		if has := &(*l)[i]; has.Attribute == u.Attribute && has.Dir == u.Dir {
			return has
		}
	}
	return nil
}

// count adds the entries to the element with the same attribute and file
// system, if there is one.
func (l *UnkeptList) count(u *Unkept) bool {
	has := l.of(u)
	if has == nil {
		return false
	}
	has.Entries += min(u.Entries, math.MaxInt64-has.Entries)
	return true
}

// WithEarlier returns the list merged with that of earlier attempts. Attempts may have
// counted the same entries, so the result has the higher count, which is a lower bound.
func (l UnkeptList) WithEarlier(earlier UnkeptList) UnkeptList {
	all := slices.Clone(earlier)
	for _, u := range l {
		if has := all.of(&u); has == nil {
			all.Add(u)
		} else {
			has.Entries, has.AtLeast = max(has.Entries, u.Entries), true
		}
	}
	return all
}
