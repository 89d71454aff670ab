package xfer

import (
	"errors"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/xfer/internal/wire"
)

// metadataFlags returns the flags of a hello that say which metadata is kept.
func (o *Options) metadataFlags() (flags uint64) {
	for _, f := range []struct {
		on   bool
		flag uint64
	}{{o.Links, wire.FlagLinks}, {o.Perms || o.ACLs, wire.FlagModes}, {o.Times, wire.FlagTimes}, {o.Owner, wire.FlagOwner}, {o.Group, wire.FlagGroup}, {o.HardLinks, wire.FlagHardLinks}, {o.Xattrs, wire.FlagXattrs}, {o.ACLs, wire.FlagACLs}, {o.NumericIDs, wire.FlagNumericIDs}, {o.RequireAttributes, wire.FlagRequireAttributes}} {
		if f.on {
			flags |= f.flag
		}
	}
	return flags
}

func keepOf(flags uint64) dest.Keep {
	return dest.Keep{Modes: flags&(wire.FlagModes|wire.FlagACLs) != 0, ACLs: flags&wire.FlagACLs != 0, Times: flags&wire.FlagTimes != 0, Xattrs: flags&wire.FlagXattrs != 0}
}

// followsNamed reports whether a named source that is a link is followed: with -L, and if the
// options ask neither for a tree nor for links as such.
func followsNamed(recursive, links, follow bool) bool { return follow || !recursive && !links }

// errLinkSkipped says that a link was skipped, because links are not copied.
var errLinkSkipped = errors.New("skipping non-regular file: a symbolic link (-l copies links)")

// ownersOf returns an entry's owner and group as they are sent to the sink. As in rsync, number 0
// is always sent as a number: root is root.
func (a *announcer) ownersOf(f *chunker.Found) (o wire.Owners) {
	flags := a.src.Session.Terms.Flags
	named := flags&wire.FlagNumericIDs == 0
	if flags&wire.FlagOwner != 0 {
		o.HasUID, o.UID = true, f.UID
		if named && f.UID != 0 {
			o.User = a.names.user(f.UID)
		}
	}
	if flags&wire.FlagGroup != 0 {
		o.HasGID, o.GID = true, f.GID
		if named && f.GID != 0 {
			o.Group = a.names.group(f.GID)
		}
	}
	return o
}

// attributesOf returns the owner and group that an entry gets at the sink: by name if this host has
// the name, otherwise by number.
func (k *sink) attributesOf(p *wire.AnnouncedEntry) *dest.Attributes {
	flags := k.Session.Terms.Flags
	if flags&(wire.FlagOwner|wire.FlagGroup) == 0 {
		return nil
	}
	named := flags&wire.FlagNumericIDs == 0
	a := &dest.Attributes{UID: -1, GID: -1}
	if flags&wire.FlagOwner != 0 && p.HasUID {
		a.UID = int(p.UID)
		if named && p.UID != 0 && p.User != "" {
			a.UID = k.intake.names.uid(p.User, p.UID)
		}
	}
	if flags&wire.FlagGroup != 0 && p.HasGID {
		a.GID = int(p.GID)
		if named && p.GID != 0 && p.Group != "" {
			a.GID = k.intake.names.gid(p.Group, p.GID)
		}
	}
	if a.UID < 0 && a.GID < 0 {
		return nil
	}
	return a
}

// resumes reports whether a later copy resumes a file that is cut off. The manifest that a copy
// writes has the digests of all pieces, including those that only the peer has.
func (o *Options) resumes() bool { return !o.NoResume && !o.DryRun && o.WriteManifest == "" }

// fileSizes returns the bounds of the size of copied files, as they are sent.
func (o *Options) fileSizes() wire.FileSizes {
	s := wire.FileSizes{MinBytes: uint64(max(0, o.MinFileBytes))}
	if o.MaxFileBytes != 0 {
		s.MaxBytes = uint64(max(0, o.MaxFileBytes)) + 1
	}
	return s
}
