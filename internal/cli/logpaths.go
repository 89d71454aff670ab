package cli

import (
	"path"
	"path/filepath"
	"strings"
	"sync/atomic"

	"gdrcp/internal/cli/args"
	"gdrcp/xfer"
)

// logPaths turns the engine's paths into full names of entries, with their hosts.
type logPaths struct {
	sources []string // absolute
	dst     string
	place   atomic.Pointer[xfer.Place] // nil before the engine has reported it
}

// set takes the ends of a copy, with all patterns expanded.
func (l *logPaths) set(p *plan) {
	source, dst := fullLocalPath, p.fullRemotePath
	switch {
	case p.local:
		dst = fullLocalPath
	case !p.push:
		source, dst = dst, source
	}
	l.sources, l.dst = nil, dst(p.dst)
	for _, s := range p.sources {
		l.sources = append(l.sources, source(s))
	}
}

// fullLocalPath makes a path of this machine absolute, except "-".
func fullLocalPath(name string) string {
	if name == streamName {
		return name
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name // the working directory no longer exists
}

// fullRemotePath returns a path at the peer, with its host. The result is not an
// operand: nothing is percent-encoded.
func (p *plan) fullRemotePath(name string) string {
	if p.far != nil {
		return p.far.String() + ":" + path.Clean(name)
	}
	return scheme + p.endpoint.String() + path.Clean("/"+name)
}

// from returns the full name of an entry at the source.
func (l *logPaths) from(entry string) string {
	place := l.place.Load()
	switch {
	case len(l.sources) > 1:
		top, rest, _ := strings.Cut(entry, "/")
		for _, s := range l.sources {
			if path.Base(s) == top {
				return args.Quote(below(s, rest))
			}
		}
		return args.Quote(entry)
	case l.isStream(), place != nil && place.Single:
		return args.Quote(l.sources[0])
	}
	return args.Quote(below(l.sources[0], entry))
}

// to returns the full name that an entry has, or would have, at the destination.
func (l *logPaths) to(entry string) string {
	place := l.place.Load()
	switch {
	case place == nil, place.Single && !place.Inside:
		return args.Quote(l.dst)
	case place.Inside && !place.Single && place.Name != "" && place.Name != ".":
		return args.Quote(below(below(l.dst, place.Name), entry))
	}
	return args.Quote(below(l.dst, entry))
}

func (l *logPaths) isStream() bool { return l.sources[0] == streamName || l.dst == streamName }

// below joins an entry's path to the path of a directory.
func below(dir, entry string) string {
	if entry == "" || entry == "." {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + entry
}
