package fileset

import (
	"math"
	"slices"
)

// Unkept counts the entries of one file system that lack one attribute of their source.
type Unkept struct {
	Attribute string // a word or two, or the name of an extended attribute
	// Dir is the directory in which the sink met the file system first, as a path in the
	// tree. It is "." for the file system of the destination itself.
	Dir     string
	Entries int64
	First   string // path of the first of the entries
	Reason  string // the error of that one
	AtLeast bool   // Entries may be more: attempts counted, and some of the same entries
}

// The attributes other than extended ones, and what stands for all that a list has no room for.
const (
	AttributeOwner  = "owner or group"
	AttributeMode   = "mode"
	AttributeACL    = "ACL"
	AttributeTime   = "time"
	AttributeXattrs = "extended attributes"
	otherAttributes = "other attributes"
)

// maxUnkept bounds an UnkeptList. The names of extended attributes are up to the source.
const maxUnkept = 64

// UnkeptList is what a copy could not keep, for each attribute and file system once. Its size
// is bounded.
type UnkeptList []Unkept

// Add counts more entries. Of the first ones it keeps the path and the reason.
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

// of returns what the list has of the same attribute and file system, or nil.
func (l *UnkeptList) of(u *Unkept) *Unkept {
	for i := range *l {
		if has := &(*l)[i]; has.Attribute == u.Attribute && has.Dir == u.Dir {
			return has
		}
	}
	return nil
}

// count adds the entries to those of the same attribute and file system, if there are any.
func (l *UnkeptList) count(u *Unkept) bool {
	has := l.of(u)
	if has == nil {
		return false
	}
	has.Entries += min(u.Entries, math.MaxInt64-has.Entries)
	return true
}

// WithEarlier returns the list with that of earlier attempts. Attempts may have counted the same
// entries, so that the highest count is what is known.
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
