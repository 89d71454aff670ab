package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// census counts the files under a path.
type census struct {
	files, folders, links int
	bytes                 int64 // of regular files
}

// count walks a path without following links.
func count(root string) (census, error) {
	var c census
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		switch {
		case d.IsDir():
			c.folders++
		case d.Type() == fs.ModeSymlink:
			c.links++
		case d.Type().IsRegular():
			info, err := d.Info()
			if err != nil {
				return err
			}
			c.files++
			c.bytes += info.Size()
		default:
			return fmt.Errorf("%s is neither file, folder nor link", name)
		}
		return nil
	})
	if err != nil {
		err = fmt.Errorf("count %s: %w", root, err)
	}
	return c, err
}

// compare checks that copied has as many files and bytes as source and, if thorough, by
// diff, that they are equal.
func compare(ctx context.Context, source, copied string, thorough bool) error {
	want, err := count(source)
	if err != nil {
		return err
	}
	got, err := count(copied)
	if err != nil {
		return err
	}
	if got != want {
		return fmt.Errorf("%s has %+v, not %+v", copied, got, want)
	}
	if thorough {
		_, err = output(ctx, "diff", "-r", "-q", "--no-dereference", source, copied)
	}
	return err
}

// allocation returns a preparation that creates a new file of the given size, whose space
// is allocated but not written.
func allocation(name string, mib int) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := os.RemoveAll(name); err != nil {
			return err
		}
		_, err := output(ctx, "fallocate", "-l", fmt.Sprintf("%dM", mib), name)
		return err
	}
}

// removal returns a preparation that removes a path.
func removal(name string) func(context.Context) error {
	return func(context.Context) error { return os.RemoveAll(name) }
}

// copying returns a competitor that copies source to copied with a command.
func copying(title, source, copied string, argv ...string) *competitor {
	return &competitor{
		name: title, prepare: removal(copied), run: timed(argv...),
		check: func(ctx context.Context, thorough bool) error {
			defer os.RemoveAll(copied) // the next one needs the memory
			return compare(ctx, source, copied, thorough)
		},
	}
}

// atRate makes a competitor that transfers mib MiB be measured in MiB/s.
func atRate(mib int, c *competitor) *competitor {
	run := c.run
	c.run = func(ctx context.Context) (float64, error) {
		took, err := run(ctx)
		return rate(mib, took), err
	}
	return c
}
