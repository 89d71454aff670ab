package xfer

import (
	"errors"
	"fmt"
	"math"
	"strings"

	"gdrcp/chunker"
)

// Flags of a hello about what is kept of the source's metadata; that about
// modes is flagModes.
const (
	flagTimes      = 256
	flagLinks      = 512
	flagOwner      = 1024
	flagGroup      = 2048
	flagHardLinks  = 4096
	flagXattrs     = 8192
	flagNumericIDs = 16384

	flagsMetadata = flagTimes | flagLinks | flagOwner | flagGroup | flagHardLinks | flagXattrs | flagNumericIDs
)

// metadataFlags are the flags of a hello that say what is kept.
func (o *Options) metadataFlags() (flags uint64) {
	for _, f := range []struct {
		on   bool
		flag uint64
	}{{o.Links, flagLinks}, {o.Perms, flagModes}, {o.Times, flagTimes}, {o.Owner, flagOwner}, {o.Group, flagGroup}, {o.HardLinks, flagHardLinks}, {o.Xattrs, flagXattrs}, {o.NumericIDs, flagNumericIDs}} {
		if f.on {
			flags |= f.flag
		}
	}
	return flags
}

func keepOf(flags uint64) chunker.Keep {
	return chunker.Keep{Modes: flags&flagModes != 0, Times: flags&flagTimes != 0, Xattrs: flags&flagXattrs != 0}
}

// followsNamed reports whether a source that is a link is followed: with -L, and
// where neither a tree nor links as such were asked for.
func followsNamed(recursive, links, follow bool) bool { return follow || !recursive && !links }

// errLinkSkipped is a link where links are not to be copied.
var errLinkSkipped = errors.New("skipping non-regular file: a symbolic link (-l copies links)")

// Tags of an entry's fields about its owner.
const (
	tagEntUID   = 9 | mustUnderstand
	tagEntGID   = 10 | mustUnderstand
	tagEntUser  = 11 | mustUnderstand
	tagEntGroup = 12 | mustUnderstand
)

// maxAccountNameBytes bounds the name of a user or group: Linux has LOGIN_NAME_MAX,
// 256 with the NUL.
const maxAccountNameBytes = 255

// owners say whose an entry is at the source, as far as that is to be kept. The
// names are empty where there are none, or go by number.
type owners struct {
	hasUID, hasGID bool
	uid, gid       uint32
	user, group    string
}

func (o *owners) appendTo(w *tlvWriter) {
	if o.hasUID {
		w.uint(tagEntUID, uint64(o.uid))
	}
	if o.hasGID {
		w.uint(tagEntGID, uint64(o.gid))
	}
	if o.user != "" {
		w.str(tagEntUser, o.user)
	}
	if o.group != "" {
		w.str(tagEntGroup, o.group)
	}
}

// field takes a field of an entry that is about its owner.
func (o *owners) field(tag byte, v []byte) error {
	switch tag {
	case tagEntUID, tagEntGID:
		u, err := tlvUint(tag, v)
		if err != nil {
			return err
		}
		if u >= math.MaxUint32 { // chown(2) takes it for no change
			return fmt.Errorf("%w: owner or group %d", ErrProtocol, u)
		}
		if tag == tagEntUID {
			o.hasUID, o.uid = true, uint32(u)
		} else {
			o.hasGID, o.gid = true, uint32(u)
		}
	case tagEntUser, tagEntGroup:
		name := string(v)
		if !isAccountName(name) {
			return fmt.Errorf("%w: name of a user or group of %d bytes", ErrProtocol, len(name))
		}
		if tag == tagEntUser {
			o.user = name
		} else {
			o.group = name
		}
	default:
		return unknownField(tag)
	}
	return nil
}

// isAccountName reports whether a name is one that can stand in passwd(5):
// it goes into a look-up there.
func isAccountName(name string) bool {
	return name != "" && len(name) <= maxAccountNameBytes && !strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f || r == ':' })
}

// ownersOf is what is told of an entry's owner and group. Those of number 0 go
// by number always, as with rsync: root is root.
func (a *announcer) ownersOf(f *chunker.Found) (o owners) {
	flags := a.params.flags
	named := flags&flagNumericIDs == 0
	if flags&flagOwner != 0 {
		o.hasUID, o.uid = true, f.UID
		if named && f.UID != 0 {
			o.user = a.names.user(f.UID)
		}
	}
	if flags&flagGroup != 0 {
		o.hasGID, o.gid = true, f.GID
		if named && f.GID != 0 {
			o.group = a.names.group(f.GID)
		}
	}
	return o
}

// attributesOf is what an entry is to have at the sink: owner and group by name
// where that exists here, else by number.
func (k *sink) attributesOf(p *planned) *chunker.Attributes {
	flags := k.params.flags
	if flags&(flagOwner|flagGroup) == 0 {
		return nil
	}
	named := flags&flagNumericIDs == 0
	a := &chunker.Attributes{UID: -1, GID: -1}
	if flags&flagOwner != 0 && p.hasUID {
		a.UID = int(p.uid)
		if named && p.uid != 0 && p.user != "" {
			a.UID = k.names.uid(p.user, p.uid)
		}
	}
	if flags&flagGroup != 0 && p.hasGID {
		a.GID = int(p.gid)
		if named && p.gid != 0 && p.group != "" {
			a.GID = k.names.gid(p.group, p.gid)
		}
	}
	if a.UID < 0 && a.GID < 0 {
		return nil
	}
	return a
}
