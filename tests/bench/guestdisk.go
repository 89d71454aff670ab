package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

const (
	// guestDisk is the disk that QEMU gives the guest (tests/bed/bed, -d).
	guestDisk = "/dev/vda"
	// guestDiskGoal is the share of what dd writes past the page cache.
	guestDiskGoal = 0.9
	// guestReadParts divides the file for the dd that reads.
	guestReadParts = 4
)

// guestDiskFiles is a file of twice the guest's memory on the guest's disk.
type guestDiskFiles struct{ source, to string }

// onGuestDisk makes a file system on the guest's disk and a file in it, and calls run.
func onGuestDisk(ctx context.Context, o options, run func(guestDiskFiles) error) (err error) {
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
	files := guestDiskFiles{filepath.Join(dir, "source"), filepath.Join(dir, "copy")}
	if err := writeRandom(files.source, int64(o.guestDiskMiB)<<20); err != nil {
		return err
	}
	return run(files)
}

// copying is gdrcp's copy of the file.
func (f guestDiskFiles) copying(o options, name string, options ...string) *competitor {
	argv := append(append([]string{o.program, "-q"}, options...), f.source, f.to)
	return &competitor{
		name: name, prepare: removal(f.to), run: func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) },
		check: func(ctx context.Context, thorough bool) error { return compare(ctx, f.source, f.to, thorough) },
	}
}

// benchGuestRate prints how many MiB a second --io buffered writes on the guest's disk, at
// best. The script run gives the next guest a disk that is faster, as far as a fast disk is
// faster than the page cache of a machine with real processors: a slower disk is kept busy by
// both ways of writing, and a much faster one by neither.
func benchGuestRate(ctx context.Context, o options) error {
	return onGuestDisk(ctx, o, func(files guestDiskFiles) error {
		const name = "gdrcp, buffered"
		values, err := alternate(ctx, o.log, o.rounds, []*competitor{files.copying(o, name, "--io", "buffered")})
		if err != nil {
			return err
		}
		fmt.Println(int(float64(o.guestDiskMiB) / slices.Min(values[name])))
		return nil
	})
}

// benchGuestDisk copies the file on a disk that writes somewhat faster than --io buffered.
func benchGuestDisk(ctx context.Context, o options) error {
	return onGuestDisk(ctx, o, func(files guestDiskFiles) error { return compareGuestDisk(ctx, o, files) })
}

func compareGuestDisk(ctx context.Context, o options, files guestDiskFiles) error {
	fmt.Fprintln(o.log, "bed: the guest's own disk, seconds")
	busy := busyTime{}
	dd := busy.watch(&competitor{name: "dd", prepare: allocation(files.to, o.guestDiskMiB), run: func(ctx context.Context) (float64, error) {
		return seconds(ctx, "dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", o.guestDiskMiB), "if=/dev/zero", "of="+files.to, "oflag=direct", "conv=notrunc,fsync")
	}})
	part := max(o.guestDiskMiB/guestReadParts, 1)
	read := busy.watch(&competitor{name: "dd from it", run: func(ctx context.Context) (float64, error) {
		return seconds(ctx, "dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", part), "if="+files.source, "of="+os.DevNull, "iflag=direct")
	}})
	little := guestDiskFiles{files.source + "-little", files.to + "-little"}
	if err := writeRandom(little.source, startMiB<<20); err != nil {
		return err
	}
	const direct, buffered, start = "gdrcp", "gdrcp, buffered", "gdrcp, little"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		busy.watch(files.copying(o, direct)), busy.watch(files.copying(o, buffered, "--io", "buffered")), dd, read,
		little.copying(o, start), digesting(),
	})
	if err != nil {
		return err
	}
	mib := float64(o.guestDiskMiB)
	perWrite, perRead := median(values["dd"])/mib, median(values["dd from it"])/float64(part)
	model := steady(mib, median(values[start])-startMiB*perWrite,
		stage{"disk writes", 1, perWrite}, stage{"disk reads", 1, perRead},
		processors(1, median(busy["dd"])/mib+median(busy["dd from it"])/float64(part)+1/median(values["digests"])))
	name := fmt.Sprintf("file of %d MiB on the guest's disk", o.guestDiskMiB)
	modelled := o.modelRow(name, values[direct], "s", model)
	fmt.Printf("\nBed: a disk of a guest with half as much memory as the file. QEMU lets it write 1.4 times as much a second as --io buffered reached\n"+
		"in the guest before, whose disk had no such limit. dd only writes, and zeros. Processor time is the whole machine's, the kernel's included.\n%s\n", modelNote())
	return o.print([]row{
		{name: name, unit: "s", ours: values[direct], peer: "dd past the page cache", peers: values["dd"], goal: guestDiskGoal},
		{name: name, unit: "s", ours: values[direct], peer: "--io buffered", peers: values[buffered], goal: directGoal},
		{name: name + ", processor time", unit: "CPU s", ours: busy[direct], peer: "--io buffered", peers: busy[buffered], goal: 1 / directCPUGoal},
		modelled,
	})
}
