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

// pairWithin is by how much a build may be slower than an earlier one, take more processor
// time or have more memory.
const pairWithin = 0.05

// build is one of two builds of the program, with its server and what its runs took.
type build struct {
	host
	title string
	spent map[string][]float64 // by comparison and unit
}

// benchPair compares a build with an earlier one, run in turn: seconds, and, because a busy
// machine spreads those, the processor time of both ends and their peak memory.
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
	var builds []*build
	for _, of := range [][2]string{{"before", earlier}, {"after", o.program}} {
		title, program := of[0], of[1]
		b := &build{host: host{options: o, dst: filepath.Join(folder, title)}, title: title, spent: map[string][]float64{}}
		b.program, b.linux, b.disk, b.resumeMiB = program, o.tree, filepath.Join(onDisk, title), o.fileMiB
		b.big, b.kibibyte = filepath.Join(folder, "big"), filepath.Join(folder, "kibibyte")
		if err := errors.Join(os.Mkdir(b.dst, 0o755), b.listen(ctx)); err != nil {
			return err
		}
		defer b.servers[0].stop()
		builds = append(builds, b)
	}
	for name, bytes := range map[string]int64{"big": int64(o.fileMiB) << 20, "kibibyte": 1 << 10} {
		if err := writeRandom(filepath.Join(folder, name), bytes); err != nil {
			return err
		}
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
		fmt.Fprintln(o.log, "pair: "+name+", seconds")
		if _, err := alternate(ctx, o.log, rounds, []*competitor{builds[0].copying(name), builds[1].copying(name)}); err != nil {
			return err
		}
		for _, unit := range []string{"s", "CPU s", "MiB"} {
			rows = append(rows, row{name: name, unit: unit, ours: builds[1].spent[name+unit], peer: "before", peers: builds[0].spent[name+unit], goal: 1 - pairWithin})
		}
	}
	return o.print(rows)
}

// listen starts the build's server.
func (b *build) listen(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s, err := b.serve(ctx, b.dst, address, "tcp "+address)
	b.gdrcp, b.servers = address, []*server{s}
	return err
}

// copying is one comparison's copy by this build.
func (b *build) copying(name string) *competitor {
	copied := strings.ReplaceAll(name, " ", "")
	over := func(source string, extra ...string) *competitor {
		argv := b.copyArgs("tcp", extra, source, b.gdrcp, copied)
		c := b.copier("", source, copied, argv...)
		c.run = b.watched(name, argv)
		return c
	}
	var c *competitor
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
		c = &competitor{prepare: removal(b.disk), run: b.watched(name, []string{b.program, "-q", b.big, b.disk})}
		c.check = func(ctx context.Context, thorough bool) error { return compare(ctx, b.big, b.disk, thorough) }
	case "memory":
		c = &competitor{run: b.watched(name, []string{b.program, "bench", "--transport", "tcp", "--hash", "xxh3", "--bytes", strconv.Itoa(b.fileMiB << 20),
			"--rounds", "0", "rdma://" + b.gdrcp})}
	}
	c.name = name + ", " + b.title
	return c
}

// watched runs a command, and notes what it and the server took, but not of the first run,
// which warms up.
func (b *build) watched(name string, argv []string) func(context.Context) (float64, error) {
	warm := false
	return func(ctx context.Context) (float64, error) {
		pid := b.servers[0].cmd.Process.Pid
		// proc_pid_clear_refs(5): 5 makes the peak of memory what is in use now.
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
			b.note(name, "s", took)
			b.note(name, "CPU s", after-before+(ours.UserTime()+ours.SystemTime()).Seconds())
			b.note(name, "MiB", peak+float64(ours.SysUsage().(*syscall.Rusage).Maxrss)/1024)
		}
		warm = true
		return took, err
	}
}

func (b *build) note(name, unit string, value float64) {
	b.spent[name+unit] = append(b.spent[name+unit], value)
}

// tookOf is the processor time of a process, in seconds, and its peak memory, in MiB
// (proc_pid_stat(5), proc_pid_status(5)).
func tookOf(pid int) (cpu, peakMiB float64, err error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	status, e := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err = errors.Join(err, e); err != nil {
		return 0, 0, err
	}
	_, after, _ := strings.Cut(string(stat), ") ") // the name before may hold spaces
	var user, system, kib float64
	if fields := strings.Fields(after); len(fields) > 12 {
		_, err = fmt.Sscan(fields[11]+" "+fields[12], &user, &system)
	}
	_, peak, _ := strings.Cut(string(status), "VmHWM:")
	_, e = fmt.Sscan(peak, &kib)
	return (user + system) / 100, kib / 1024, errors.Join(err, e)
}
