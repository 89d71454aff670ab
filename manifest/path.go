package manifest

import (
	"fmt"
	"strings"
)

// Bounds of a path, in bytes. They are Linux's (NAME_MAX and PATH_MAX, less the
// NUL, in limits.h), so Linux can create every path that passes.
const (
	MaxNameBytes = 255
	MaxPathBytes = 4095
)

// CheckPath returns an error unless p is a valid entry path: "." alone, or components of 1
// to MaxNameBytes bytes joined by single slashes, none of them "." or "..", no NUL, at
// most MaxPathBytes in all. Joined to a directory, such a path can lead out of the
// directory only through a symbolic link. Errors wrap ErrPath.
func CheckPath(p string) error {
	switch {
	case p == ".":
		return nil
	case p == "":
		return fmt.Errorf("%w: empty", ErrPath)
	case len(p) > MaxPathBytes:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrPath, len(p), MaxPathBytes)
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("%w: NUL in %q", ErrPath, p)
	case p[0] == '/':
		return fmt.Errorf("%w: absolute: %q", ErrPath, p)
	}
	for rest, more := p, true; more; {
		var name string
		name, rest, more = strings.Cut(rest, "/")
		if name == "" || name == "." || name == ".." {
			return fmt.Errorf("%w: component %q in %q", ErrPath, name, p)
		}
		if len(name) > MaxNameBytes {
			return fmt.Errorf("%w: component of %d bytes, at most %d", ErrPath, len(name), MaxNameBytes)
		}
	}
	return nil
}

// ComparePaths defines the order of a manifest's entries, and of a walk: "."
// first, then bytewise.
func ComparePaths(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == ".":
		return -1
	case b == ".":
		return 1
	}
	return strings.Compare(a, b)
}

// IsBelow reports whether path is below the directory dir, at any depth.
// Everything is below ".".
func IsBelow(path, dir string) bool {
	return dir == "." || len(path) > len(dir) && path[len(dir)] == '/' && path[:len(dir)] == dir
}

// checkTarget returns an error unless t is a valid target of a symbolic link:
// any bytes but NUL, 1 to MaxPathBytes of them, as in symlink(2). It does not
// check where the link leads: code that follows links must do that.
func checkTarget(t string) error {
	switch {
	case t == "":
		return fmt.Errorf("%w: symbolic link without a target", ErrEntry)
	case len(t) > MaxPathBytes:
		return fmt.Errorf("%w: link target of %d bytes, at most %d", ErrEntry, len(t), MaxPathBytes)
	case strings.IndexByte(t, 0) >= 0:
		return fmt.Errorf("%w: NUL in link target %q", ErrEntry, t)
	}
	return nil
}

// maxMode has all the permission bits that an entry can have.
const maxMode = 0o7777

// Check returns an error unless e's fields are valid and agree with its type:
// CheckPath accepts the path, only a file has a size or a root, only a link has
// a target, "." is a directory. Errors wrap ErrPath or ErrEntry.
func (e *Entry) Check() error {
	if err := CheckPath(e.Path); err != nil {
		return err
	}
	if e.Mode > maxMode {
		return fmt.Errorf("%w: mode %#o of %q", ErrEntry, e.Mode, e.Path)
	}
	if e.Path == "." && e.Type != Dir {
		return fmt.Errorf("%w: \".\" is not a directory", ErrEntry)
	}
	switch e.Type {
	case File:
		if e.Size < 0 {
			return fmt.Errorf("%w: size %d of %q", ErrEntry, e.Size, e.Path)
		}
		if e.Target != "" {
			return fmt.Errorf("%w: file %q has a link target", ErrEntry, e.Path)
		}
		return nil
	case Symlink:
		if err := checkTarget(e.Target); err != nil {
			return err
		}
	case Dir:
		if e.Target != "" {
			return fmt.Errorf("%w: directory %q has a link target", ErrEntry, e.Path)
		}
	default:
		return fmt.Errorf("%w: type %q of %q", ErrEntry, byte(e.Type), e.Path)
	}
	if e.Size != 0 || e.Root != (Digest{}) {
		return fmt.Errorf("%w: %q is not a file but has a size or a root", ErrEntry, e.Path)
	}
	return nil
}
