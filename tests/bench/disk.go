package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// directGoal is the required speed of writing a large file with O_DIRECT, relative to
	// the page cache, and directCPUGoal the allowed processor time, likewise.
	directGoal, directCPUGoal = 1.3, 0.7
	// journalGoal is the required speed of a copy with a journal, relative to one without.
	journalGoal = 0.95
	// ddGoal is the required speed relative to ddCount concurrent dd with O_DIRECT.
	ddGoal, ddCount = 0.9, 4
)

// middleMiB is the size of the medium-sized files of a tree that is copied to the disk.
const middleMiB = 16

// diskBench compares methods of writing to this host's disk.
type diskBench struct {
	host
	dir      string // on the disk
	inMemory string // the file to copy
}

// compareDisk times copies of one large file to and from a disk, with O_DIRECT and through
// the page cache, and compares them with dd.
func (h *host) compareDisk(ctx context.Context) (rows []row, err error) {
	var fs unix.Statfs_t
	if err := unix.Statfs(h.disk, &fs); err != nil {
		return nil, fmt.Errorf("look at %s: %w", h.disk, err)
	}
	if fs.Type == unix.TMPFS_MAGIC {
		fmt.Fprintf(h.log, "host: no rows of a disk: %s is in memory; name another folder with -disk\n", h.disk)
		return nil, nil
	}
	if free := int64(fs.Bavail) * fs.Bsize >> 20; free < int64(2*h.diskMiB) {
		return nil, fmt.Errorf("%s has %d MiB free and needs %d: name another folder with -disk", h.disk, free, 2*h.diskMiB)
	}
	dir, err := os.MkdirTemp(h.disk, "gdrcp-bench.")
	if err != nil {
		return nil, err
	}
	d := &diskBench{host: *h, dir: dir, inMemory: h.big + "-disk"}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(d.inMemory)) }()
	if err := writeRandom(d.inMemory, int64(h.diskMiB)<<20); err != nil {
		return nil, err
	}
	for _, compare := range []func(context.Context) ([]row, error){d.toDisk, d.middleToDisk} {
		more, err := compare(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

// toDisk writes the file to the disk.
func (d *diskBench) toDisk(ctx context.Context) ([]row, error) {
	name := fmt.Sprintf("%d MiB file to the disk", d.diskMiB)
	fmt.Fprintln(d.log, "host: "+name+", "+d.disk+", seconds")
	to, part := filepath.Join(d.dir, "copy"), d.diskMiB/ddCount
	ours := func(title string, options ...string) *competitor {
		return copying(title, d.inMemory, to, slices.Concat([]string{d.program, "-q"}, options, []string{d.inMemory, to})...)
	}
	dd := make([][]string, ddCount) // each writes its own part
	for i := range dd {
		dd[i] = []string{"dd", "bs=1M", "status=none", fmt.Sprintf("count=%d", part), fmt.Sprintf("skip=%d", i*part), fmt.Sprintf("seek=%d", i*part),
			"if=" + d.inMemory, "of=" + to, "conv=notrunc,fsync", "oflag=direct"}
	}
	const direct, buffered, journal, past = "to disk", "to disk, buffered", "no journal", "dd"
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{
		ours(direct), ours(buffered, "--io", "buffered"), ours(journal, "--no-resume"),
		{name: past, prepare: allocation(to, d.diskMiB), run: func(ctx context.Context) (float64, error) { return together(ctx, dd...) }},
	})
	against := func(peer, title string, goal float64) row {
		return row{name: name, unit: "s", ours: values[direct], peer: peer, peers: values[title], goal: goal}
	}
	return []row{
		against("--io buffered", buffered, directGoal),
		{name: name + ", processor time", unit: "CPU s", ours: values[direct+inCPU], peer: "--io buffered", peers: values[buffered+inCPU], goal: 1 / directCPUGoal},
		against(fmt.Sprintf("%d dd past the page cache", ddCount), past, ddGoal),
		against("--no-resume: no journal", journal, journalGoal),
	}, errors.Join(err, os.RemoveAll(to))
}

// middleToDisk writes a tree of medium-sized files to the disk, a quarter of the large
// file in all.
func (d *diskBench) middleToDisk(ctx context.Context) (rows []row, err error) {
	count := max(d.diskMiB/4/middleMiB, 1)
	name := fmt.Sprintf("%d files of %d MiB to the disk", count, middleMiB)
	fmt.Fprintln(d.log, "host: "+name+", seconds")
	tree, to := d.inMemory+"-tree", filepath.Join(d.dir, "tree")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(tree), os.RemoveAll(to)) }()
	for i := range count {
		if err := writeRandom(filepath.Join(tree, fmt.Sprint(i)), middleMiB<<20); err != nil {
			return nil, err
		}
	}
	whole := func(title string, argv ...string) *competitor {
		return copying(title, tree, to, append(argv, tree, to)...)
	}
	const direct, buffered, cp = "tree to disk", "tree to disk, buffered", "cp and sync"
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{
		whole(direct, d.program, "-q", "-r"),
		whole(buffered, d.program, "-q", "-r", "--io", "buffered"),
		whole(cp, "sh", "-c", `cp -r "$1" "$2" && sync -f "$2"`, "sh"),
	})
	against := func(peer, title string, goal float64) row {
		return row{name: name, unit: "s", ours: values[direct], peer: peer, peers: values[title], goal: goal}
	}
	return []row{
		against("--io buffered", buffered, directGoal),
		{name: name + ", processor time", unit: "CPU s", ours: values[direct+inCPU], peer: "--io buffered", peers: values[buffered+inCPU]},
		against("cp and sync", cp, 0),
	}, err
}
