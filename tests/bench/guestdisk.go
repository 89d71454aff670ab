package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

const (
	// guestDisk is the disk that QEMU gives the guest (tests/bed/bed, -d).
	guestDisk = "/dev/vda"
	// guestDiskGoal is the share of what dd writes past the page cache.
	guestDiskGoal = 0.9
)

// benchGuestDisk copies a file of twice the guest's memory on the guest's disk, whose writing
// is as slow beside the emulated processors as a fast disk is beside real ones.
func benchGuestDisk(ctx context.Context, o options) (err error) {
	dir, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, argv := range [][]string{{"mkfs.xfs", "-q", guestDisk}, {"mount", guestDisk, dir}} {
		if _, err := output(ctx, argv...); err != nil {
			return err
		}
	}
	defer func() {
		_, unmounted := output(context.Background(), "umount", dir) // also after an interrupt
		err = errors.Join(err, unmounted)
	}()
	source, to := filepath.Join(dir, "source"), filepath.Join(dir, "copy")
	if err := writeRandom(source, int64(o.guestDiskMiB)<<20); err != nil {
		return err
	}
	fmt.Fprintln(o.log, "bed: the guest's own disk, seconds")
	busy := busyTime{}
	copying := func(name string, options ...string) *competitor {
		argv := append(append([]string{o.program, "-q"}, options...), source, to)
		return busy.watch(&competitor{
			name: name, prepare: removal(to), run: func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) },
			check: func(ctx context.Context, thorough bool) error { return compare(ctx, source, to, thorough) },
		})
	}
	dd := &competitor{name: "dd", prepare: allocation(to, o.guestDiskMiB), run: func(ctx context.Context) (float64, error) {
		return seconds(ctx, "dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", o.guestDiskMiB), "if=/dev/zero", "of="+to, "oflag=direct", "conv=notrunc,fsync")
	}}
	const direct, buffered = "gdrcp", "gdrcp, buffered"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{copying(direct), copying(buffered, "--io", "buffered"), dd})
	if err != nil {
		return err
	}
	name := fmt.Sprintf("file of %d MiB on the guest's disk", o.guestDiskMiB)
	fmt.Printf("\nBed: a disk of a guest with half as much memory as the file, which QEMU lets write so many MiB a second as tests/bench/run says.\n" +
		"dd only writes, and zeros. Processor time is the whole machine's, the kernel's included.\n")
	return o.print([]row{
		{name: name, unit: "s", ours: values[direct], peer: "dd past the page cache", peers: values["dd"], goal: guestDiskGoal},
		{name: name, unit: "s", ours: values[direct], peer: "--io buffered", peers: values[buffered], goal: directGoal},
		{name: name + ", processor time", unit: "CPU s", ours: busy[direct], peer: "--io buffered", peers: busy[buffered], goal: 1 / directCPUGoal},
	})
}
