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
	sources []string // in full
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

// fullLocalPath makes a path of this machine absolute. It leaves "-" as it is.
func fullLocalPath(name string) string {
	if name == streamName {
		return name
	}
	if abs, err := filepath.Abs(name); err == nil {
		return abs
	}
	return name // the working directory is gone
}

// fullRemotePath returns a path at the other end, with its host. It is no operand:
// nothing is percent-encoded.
func (p *plan) fullRemotePath(name string) string {
	if p.far != nil {
		return p.far.String() + ":" + path.Clean(name)
	}
	return scheme + p.endpoint.String() + path.Clean("/"+name)
}

// from returns where the source has an entry.
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

// to returns where the destination has an entry, or would have it.
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

// below returns an entry's path below that of a directory.
func below(dir, entry string) string {
	if entry == "" || entry == "." {
		return dir
	}
	return strings.TrimSuffix(dir, "/") + "/" + entry
}
