package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	// lateMs is the delay of the disk for each request. It is so long that an emulated
	// processor has nothing else to do.
	lateMs = 100
	// lateGoal is the required rate relative to one request at a time. gdrcp has eight
	// requests in flight on two processors.
	lateGoal    = 0.85 * 8
	lateDiskMiB = 1792
	// lateParts divides the file for dd, which has one request in flight.
	lateParts = 8
)

// lateDisk is an XFS on a delayed disk (dm-delay), backed by a file in memory.
type lateDisk struct {
	dir  string // its mount point
	loop string // the underlying device
}

// lateName is the device's name.
const lateName = "gdrcp-late"

func makeLateDisk(ctx context.Context, folder string) (d *lateDisk, err error) {
	d = &lateDisk{dir: filepath.Join(folder, "late")}
	image := filepath.Join(folder, "late.image")
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(lateDiskMiB<<20), f.Close(), os.Mkdir(d.dir, 0o755))
	}
	if err != nil {
		return nil, err
	}
	if d.loop, err = output(ctx, "losetup", "--find", "--show", image); err != nil {
		return nil, err
	}
	d.loop = strings.TrimSpace(d.loop)
	for _, argv := range [][]string{
		{"mkfs.xfs", "-q", d.loop}, {"dmsetup", "--noudevsync", "create", lateName, "--table", fmt.Sprintf("0 %d delay %s 0 %d", lateDiskMiB<<11, d.loop, lateMs)},
		{"dmsetup", "mknodes"}, // there is no udev in the guest
		{"mount", "/dev/mapper/" + lateName, d.dir},
		{"blockdev", "--setra", "131072", "/dev/mapper/" + lateName}, // for the verification of copies
	} {
		if _, err := output(ctx, argv...); err != nil {
			return nil, errors.Join(err, d.remove())
		}
	}
	return d, nil
}

// remove unmounts the disk and removes its devices, as far as they were created.
func (d *lateDisk) remove() error {
	var errs []error
	ctx := context.Background() // even after an interrupt
	for _, argv := range [][]string{{"umount", d.dir}, {"dmsetup", "--noudevsync", "remove", lateName}, {"losetup", "--detach", d.loop}} {
		_, err := output(ctx, argv...)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// benchLateDisk prints the table for a delayed disk.
func benchLateDisk(ctx context.Context, o options) error {
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	source := filepath.Join(folder, "source")
	if err := writeRandom(source, int64(o.lateFileMiB)<<20); err != nil {
		return err
	}
	rows, err := o.compareLateDisk(ctx, folder, source)
	if err != nil {
		return err
	}
	fmt.Printf("\nBed: a disk in a guest that answers each request %d ms late (dm-delay). dd has one request under way.\n", lateMs)
	return o.print(rows)
}

// compareLateDisk shows that the rate of one large file, with O_DIRECT, grows with the
// number of requests in flight if each waits for the disk: at the sink, at the source, at
// both.
func (o options) compareLateDisk(ctx context.Context, folder, source string) (rows []row, err error) {
	fmt.Fprintf(o.log, "bed: a disk that answers after %d ms, MiB/s\n", lateMs)
	d, err := makeLateDisk(ctx, folder)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, d.remove()) }()
	onIt, copied, inMemory := filepath.Join(d.dir, "source"), filepath.Join(d.dir, "copied"), filepath.Join(folder, "copied")
	if _, err := output(ctx, "dd", "status=none", "bs=16M", "oflag=direct", "if="+source, "of="+onIt); err != nil {
		return nil, err
	}
	ours := func(name, from, to string) *competitor {
		return atRate(o.lateFileMiB, copying(name, source, to, o.program, "-q", from, to))
	}
	part := max(o.lateFileMiB/lateParts, 1)
	alone := func(name string, prepare func(context.Context) error, operands ...string) *competitor {
		dd := []string{"dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", part)}
		return atRate(part, &competitor{name: name, prepare: prepare, run: timed(append(dd, operands...)...)})
	}
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		alone("dd to it", allocation(copied, part), "if="+source, "of="+copied, "oflag=direct", "conv=notrunc"),
		ours("to it", source, copied),
		alone("dd from it", nil, "if="+onIt, "of="+os.DevNull, "iflag=direct"),
		ours("from it", onIt, inMemory),
		ours("from it to it", onIt, copied),
	})
	if err != nil {
		return nil, err
	}
	for _, of := range [][2]string{{"to it", "dd to it"}, {"from it", "dd from it"}, {"from it to it", "dd to it"}} {
		rows = append(rows, row{name: fmt.Sprintf("file of %d MiB, disk late by %d ms, %s", o.lateFileMiB, lateMs, of[0]), unit: "MiB/s",
			ours: values[of[0]], peer: "dd, 1 request at a time", peers: values[of[1]], goal: lateGoal})
	}
	return rows, nil
}
