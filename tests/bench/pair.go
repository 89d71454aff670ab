package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// pairWithin is how much more time, processor time or memory a build may use than an
// earlier one.
const pairWithin = 0.05

// build is one of two builds of the program, with its server and the measurements of its
// runs.
type build struct {
	host
	title string
	spent map[string][]float64 // keyed by comparison and unit
}

// benchPair compares a build with an earlier one, run in turn: seconds, and, because those
// vary on a busy machine, the processor time of both ends and their peak memory.
func benchPair(ctx context.Context, o options, earlier string) (err error) {
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return err
	}
	onDisk, err := os.MkdirTemp(o.disk, "gdrcp-bench.")
	defer func() { err = errors.Join(err, os.RemoveAll(folder), os.RemoveAll(onDisk)) }()
	if err != nil {
		return err
	}
	o.resumeMiB = o.fileMiB
	both := []*build{{title: "before"}, {title: "after"}}
	for i, program := range []string{earlier, o.program} {
		b := both[i]
		b.spent = map[string][]float64{}
		b.host = host{options: o, linux: o.tree, dst: filepath.Join(folder, b.title)}
		b.big, b.kibibyte, b.program, b.disk = filepath.Join(folder, "big"), filepath.Join(folder, "kibibyte"), program, filepath.Join(onDisk, b.title)
		if err := errors.Join(os.Mkdir(b.dst, 0o755), b.listen(ctx)); err != nil {
			return err
		}
		defer b.servers[0].stop()
	}
	if err := errors.Join(writeRandom(both[0].big, int64(o.fileMiB)<<20), writeRandom(both[0].kibibyte, 1<<10)); err != nil {
		return err
	}
	var rows []row
	for _, name := range []string{"file", "tree", "memory", "disk", "resume", "1 KiB"} {
		if !o.wants(name) {
			continue
		}
		rounds := o.rounds
		if name == "1 KiB" {
			rounds *= shortRounds
		}
		if _, err := alternate(ctx, o.log, rounds, []*competitor{both[0].copying(name), both[1].copying(name)}); err != nil {
			return err
		}
		for _, unit := range []string{"s", "CPU s", "MiB"} {
			rows = append(rows, row{name: name, unit: unit, ours: both[1].spent[name+unit], peer: "before", peers: both[0].spent[name+unit], goal: 1 / (1 + pairWithin)})
		}
	}
	return o.print(rows)
}

// copying returns one comparison's copy with this build.
func (b *build) copying(name string) *competitor {
	copied := strings.ReplaceAll(name, " ", "")
	over := func(source string, extra ...string) *competitor {
		c := b.copier("", source, copied)
		c.run = b.watched(name, b.copyArgs("tcp", extra, source, b.gdrcp, copied)...)
		return c
	}
	c := &competitor{}
	switch name {
	case "file":
		c = over(b.big)
	case "tree":
		c = over(b.linux, "-rlpt")
	case "1 KiB":
		c = over(b.kibibyte)
	case "resume":
		c = over(b.big)
		c.prepare = func(ctx context.Context) error { return b.cutOff(ctx, b.big, copied) }
	case "disk":
		c = copying("", b.big, b.disk)
		c.run = b.watched(name, b.program, "-q", b.big, b.disk)
	case "memory":
		c.run = b.watched(name, b.program, "bench", "--transport", "tcp", "--hash", "xxh3", "--bytes", strconv.Itoa(b.fileMiB<<20), "--rounds", "0", "rdma://"+b.gdrcp)
	}
	c.name = name + ", " + b.title
	return c
}

// watched runs a command, and records the resources that it and the server used, except in
// the first run, which warms up.
func (b *build) watched(name string, argv ...string) func(context.Context) (float64, error) {
	warm := false
	return func(ctx context.Context) (float64, error) {
		pid := b.servers[0].cmd.Process.Pid
		// proc_pid_clear_refs(5): 5 resets the peak of memory to the current use.
		err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0)
		before, _, e := tookOf(pid)
		if err = errors.Join(err, e); err != nil {
			return 0, err
		}
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		start := time.Now()
		if text, err := cmd.CombinedOutput(); err != nil {
			return 0, fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), err, tail(string(text)))
		}
		took := time.Since(start).Seconds()
		after, peak, err := tookOf(pid)
		if warm {
			ours := cmd.ProcessState
			for unit, value := range map[string]float64{
				"s": took, "CPU s": after - before + (ours.UserTime() + ours.SystemTime()).Seconds(),
				"MiB": peak + float64(ours.SysUsage().(*syscall.Rusage).Maxrss)/1024,
			} {
				b.spent[name+unit] = append(b.spent[name+unit], value)
			}
		}
		warm = true
		return took, err
	}
}

// tookOf returns the processor time of a process, in seconds, and its peak memory, in MiB
// (proc_pid_stat(5), proc_pid_status(5)).
func tookOf(pid int) (cpu, peakMiB float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	status, e := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err = errors.Join(err, e); err != nil {
		return 0, 0, err
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the preceding name may contain spaces
	var user, system, kib float64
	if fields := strings.Fields(after); len(fields) > 12 {
		_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	_, e = fmt.Sscan(peak, &kib)
	return (user + system) / 100, kib / 1024, errors.Join(err, e)
}
