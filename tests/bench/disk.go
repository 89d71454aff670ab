package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// directGoal is how many times as fast as through the page cache a large file gets to
	// the disk, and directCPUGoal what it takes of that one's processor time.
	directGoal, directCPUGoal = 1.3, 0.7
	// journalGoal is the share of the speed without a journal that a copy keeps.
	journalGoal = 0.95
	// ddGoal is the share of what dd reaches past the page cache, ddCount at once.
	ddGoal, ddCount = 0.9, 4
)

// middleMiB is the size of a file of middle size, of which a tree is copied to the disk.
const middleMiB = 16

// diskBench compares ways to and from this host's disk.
type diskBench struct {
	host
	dir            string // on the disk
	inMemory, onIt string // the file to copy, in both places
	cpu            map[string][]float64
}

// compareDisk times copies of one large file to a disk and from there, past the page cache
// and through it, beside dd.
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
	d := &diskBench{host: *h, dir: dir, inMemory: h.big + "-disk", onIt: filepath.Join(dir, "source"), cpu: make(map[string][]float64)}
	defer func() { err = errors.Join(err, os.RemoveAll(dir), os.Remove(d.inMemory)) }()
	if err := writeRandom(d.inMemory, int64(h.diskMiB)<<20); err != nil {
		return nil, err
	}
	for _, compare := range []func(context.Context) ([]row, error){d.toDisk, d.middleToDisk, d.changedOnDisk, d.fromDisk} {
		more, err := compare(ctx)
		if err != nil {
			return nil, err
		}
		rows = append(rows, more...)
	}
	return rows, nil
}

func (d *diskBench) name() string { return fmt.Sprintf("%d MiB file", d.diskMiB) }

// toDisk writes the file to the disk.
func (d *diskBench) toDisk(ctx context.Context) ([]row, error) {
	fmt.Fprintln(d.log, "host: "+d.name()+" to "+d.disk+", seconds")
	to := filepath.Join(d.dir, "copy")
	ours := func(title string, options ...string) *competitor {
		return &competitor{
			name: title, prepare: removal(to), run: d.withCPU(title, append(append([]string{d.program, "-q"}, options...), d.inMemory, to)),
			check: func(ctx context.Context, thorough bool) error { return compare(ctx, d.inMemory, to, thorough) },
		}
	}
	dd := &competitor{name: "dd", prepare: allocation(to, d.diskMiB), run: func(ctx context.Context) (float64, error) {
		return d.besideEachOther(ctx, "if="+d.inMemory, "of="+to, "conv=notrunc,fsync", "oflag=direct")
	}}
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{ours("to disk"), ours("to disk, buffered", "--io", "buffered"), ours("no journal", "--no-resume"), dd})
	if err = errors.Join(err, os.RemoveAll(to)); err != nil {
		return nil, err
	}
	journal := row{name: d.name() + " to the disk", unit: "s", ours: values["to disk"], peer: "--no-resume: no journal", peers: values["no journal"], goal: journalGoal}
	return append(d.rows("to the disk", "to disk", values, directGoal), journal), nil
}

// middleToDisk writes a tree of files of middle size to the disk, a quarter of the large file
// in all.
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
	copying := func(title string, argv ...string) *competitor {
		return &competitor{
			name: title, prepare: removal(to), run: d.withCPU(title, append(argv, tree, to)),
			check: func(ctx context.Context, thorough bool) error { return compare(ctx, tree, to, thorough) },
		}
	}
	const direct, buffered, cp = "tree to disk", "tree to disk, buffered", "cp and sync"
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{
		copying(direct, d.program, "-q", "-r"),
		copying(buffered, d.program, "-q", "-r", "--io", "buffered"),
		copying(cp, "sh", "-c", `cp -r "$1" "$2" && sync -f "$2"`, "sh"),
	})
	against := func(peer, title string, goal float64) row {
		return row{name: name, unit: "s", ours: values[direct], peer: peer, peers: values[title], goal: goal}
	}
	return []row{
		against("--io buffered", buffered, directGoal),
		{name: name + ", processor time", unit: "CPU s", ours: d.cpu[direct], peer: "--io buffered", peers: d.cpu[buffered]},
		against("cp and sync", cp, 0),
	}, err
}

// fromDisk reads the file from the disk, into memory.
func (d *diskBench) fromDisk(ctx context.Context) ([]row, error) {
	fmt.Fprintln(d.log, "host: "+d.name()+" from "+d.disk+", seconds")
	if err := copyWhole(d.inMemory, d.onIt); err != nil {
		return nil, err
	}
	to := filepath.Join(d.dst, "from-disk")
	ours := func(title, io string) *competitor {
		return &competitor{
			name: title, prepare: d.uncached(to), run: d.withCPU(title, []string{d.program, "-q", "--io", io, "--no-fsync", d.onIt, to}),
			check: func(ctx context.Context, thorough bool) error { return compare(ctx, d.inMemory, to, thorough) },
		}
	}
	dd := &competitor{name: "dd", prepare: d.uncached(to), run: func(ctx context.Context) (float64, error) {
		return d.besideEachOther(ctx, "if="+d.onIt, "of="+os.DevNull, "iflag=direct")
	}}
	values, err := alternate(ctx, d.log, d.rounds, []*competitor{ours("from disk", "auto"), ours("from disk, buffered", "buffered"), dd})
	if err = errors.Join(err, os.RemoveAll(to)); err != nil {
		return nil, err
	}
	return d.rows("from the disk", "from disk", values, 0), nil
}

// rows are those of one direction. goal is for the page cache; there is none for reading.
func (d *diskBench) rows(way, title string, values map[string][]float64, goal float64) []row {
	name, buffered := d.name()+" "+way, title+", buffered"
	rows := []row{
		{name: name, unit: "s", ours: values[title], peer: "--io buffered", peers: values[buffered], goal: goal},
		{name: name + ", processor time", unit: "CPU s", ours: d.cpu[title], peer: "--io buffered", peers: d.cpu[buffered]},
		{name: name, unit: "s", ours: values[title], peer: fmt.Sprintf("%d dd past the page cache", ddCount), peers: values["dd"]},
	}
	if goal > 0 {
		rows[1].goal, rows[2].goal = 1/directCPUGoal, ddGoal
	}
	return rows
}

// withCPU runs a command, and notes its processor time, but not that of the first run,
// which warms up.
func (d *diskBench) withCPU(title string, argv []string) func(context.Context) (float64, error) {
	warm := false
	return func(ctx context.Context) (float64, error) {
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		var text strings.Builder
		cmd.Stderr = &text
		start := time.Now()
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(text.String()))
		}
		took := time.Since(start).Seconds()
		if warm {
			d.cpu[title] = append(d.cpu[title], (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
		}
		warm = true
		return took, nil
	}
}

// besideEachOther runs several dd at once, each for its part of the file.
func (d *diskBench) besideEachOther(ctx context.Context, operands ...string) (float64, error) {
	part := d.diskMiB / ddCount
	var commands [][]string
	for i := range ddCount {
		own := append([]string{"dd", "bs=1M", "status=none", fmt.Sprintf("count=%d", part), fmt.Sprintf("skip=%d", i*part)}, operands...)
		if !slices.Contains(operands, "of="+os.DevNull) {
			own = append(own, fmt.Sprintf("seek=%d", i*part))
		}
		commands = append(commands, own)
	}
	return together(ctx, commands...)
}

// uncached removes a copy, and takes the file on the disk out of the page cache.
func (d *diskBench) uncached(copied string) func(context.Context) error {
	return func(context.Context) error {
		f, err := os.Open(d.onIt)
		if err != nil {
			return err
		}
		defer f.Close()
		return errors.Join(os.RemoveAll(copied), f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
	}
}
