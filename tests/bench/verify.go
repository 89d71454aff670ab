package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// census counts what is under a path.
type census struct {
	files, folders, links int
	bytes                 int64 // of regular files
}

// count takes the census of a path. With follow, what a link leads to counts in its place.
func count(root string, follow bool) (census, error) {
	var c census
	look := os.Lstat
	if follow {
		look = os.Stat
	}
	err := c.add(root, look)
	if err != nil {
		err = fmt.Errorf("count %s: %w", root, err)
	}
	return c, err
}

func (c *census) add(name string, look func(string) (fs.FileInfo, error)) error {
	info, err := look(name)
	if err != nil {
		return err
	}
	switch {
	case info.Mode().IsRegular():
		c.files++
		c.bytes += info.Size()
	case info.Mode()&fs.ModeSymlink != 0:
		c.links++
	case info.IsDir():
		c.folders++
		entries, err := os.ReadDir(name)
		if err != nil {
			return err
		}
		for _, e := range entries {
			if err := c.add(filepath.Join(name, e.Name()), look); err != nil {
				return err
			}
		}
	default:
		return fmt.Errorf("%s is neither file, folder nor link", name)
	}
	return nil
}

// compare checks that copied has as many files and bytes as source and, when
// thorough, by diff, that they are the same. follow is for tools that copy
// what a link leads to in its place.
func compare(ctx context.Context, source, copied string, follow, thorough bool) error {
	want, err := count(source, follow)
	if err != nil {
		return err
	}
	got, err := count(copied, false)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s has %+v, not %+v", copied, got, want)
	}
	if !thorough {
		return nil
	}
	argv := []string{"diff", "-r", "-q"}
	if !follow {
		argv = append(argv, "--no-dereference")
	}
	_, err = output(ctx, append(argv, source, copied)...)
	return err
}

// removal returns a preparation that removes a path.
func removal(name string) func(context.Context) error {
	return func(context.Context) error { return os.RemoveAll(name) }
}
