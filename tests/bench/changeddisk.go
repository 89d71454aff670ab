package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// changedOnDisk copies a file, a quarter of the large one, to one on the disk that differs in
// some pieces. On a file system that shares no blocks the rest is copied from the old file.
func (d *diskBench) changedOnDisk(ctx context.Context) (rows []row, err error) {
	mib := max(d.diskMiB/4, 1)
	name := fmt.Sprintf("--checksum of %s to the disk, %d pieces differ", mebibytes(mib), changedPieces)
	fmt.Fprintln(d.log, "host: "+name+", seconds")
	from, to := d.inMemory+"-quarter", filepath.Join(d.dir, "changed")
	defer func() { err = errors.Join(err, os.RemoveAll(from), os.RemoveAll(to)) }()
	if err := writeRandom(from, int64(mib)<<20); err != nil {
		return nil, err
	}
	if err := copyWhole(from, to); err != nil {
		return nil, err
	}
	changed := func(title string, argv ...string) *competitor {
		return &competitor{
			name: title, prepare: func(context.Context) error { return changePieces(to, mib) }, run: d.withCPU(title, append(argv, from, to)),
			check: func(ctx context.Context, thorough bool) error { return compare(ctx, from, to, thorough) },
		}
	}
	const direct, buffered, rsync = "changed", "changed, buffered", "changed, rsync"
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{
		changed(direct, d.program, "-q", "--checksum"),
		changed(buffered, d.program, "-q", "--checksum", "--io", "buffered"),
		changed(rsync, "rsync", "--no-whole-file", "--fsync"),
	})
	return []row{
		{name: name, unit: "s", ours: values[direct], peer: "--io buffered", peers: values[buffered], goal: directGoal},
		{name: name + ", processor time", unit: "CPU s", ours: d.cpu[direct], peer: "--io buffered", peers: d.cpu[buffered]},
		{name: name, unit: "s", ours: values[direct], peer: "rsync --no-whole-file --fsync", peers: values[rsync]},
	}, err
}
