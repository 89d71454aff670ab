package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

const (
	// encryptedGoal is the required rate with --encrypt, relative to that without, from
	// memory to memory, and encryptedFileGoal that of files.
	encryptedGoal     = 0.65
	encryptedFileGoal = 0.6
	// verifiedGoal is the required rate with digests at both ends, relative to that
	// without.
	verifiedGoal = 0.9
)

// host has the state of the comparisons over loopback TCP.
type host struct {
	options
	big, linux   string   // sources
	kibibyte     string   // likewise, of 1 KiB
	plain        string   // linux without its few links, which scp cannot copy
	dst          string   // the directory that all servers write to
	gdrcp, rsync string   // servers: host:port
	sshConfig    string   // configuration for reaching an SSH server
	scp          []string // the command up to its sources
	sshDst       string   // dst in the syntax of scp, and of gdrcp
	servers      []*server
}

// benchHost compares copies over loopback TCP and prints the table.
func benchHost(ctx context.Context, o options) error {
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	h := &host{options: o}
	defer func() {
		for _, s := range h.servers {
			s.stop()
		}
	}()
	if err := h.prepare(ctx, folder); err != nil {
		return err
	}
	var rows []row
	known := o.only == ""
	for _, c := range []struct {
		name string
		rows func(context.Context) ([]row, error)
	}{
		{"file", h.compareFile}, {"resume", h.compareResume}, {"checksum", h.compareChecksum}, {"disk", h.compareDisk},
		{"memory", h.compareMemory}, {"tree", h.compareTree}, {"small", h.smallFile},
	} {
		if !o.wants(c.name) {
			continue
		}
		known = true
		more, err := c.rows(ctx)
		if err != nil {
			return err
		}
		rows = append(rows, more...)
	}
	if !known {
		return fmt.Errorf("no comparison is called %q", o.only)
	}
	fmt.Printf("\nHost: tmpfs to tmpfs over loopback TCP, times from start to exit of the client. gdrcp verifies every piece and syncs\n" +
		"(its defaults); rsync and scp do not sync, which on tmpfs costs nothing. rsync is its daemon, without ssh. scp runs over a server\n" +
		"of its own. scp -r has no warm-up, and gets the tree without its few links, which it cannot copy. What is beyond a command is the\n" +
		"difference of two runs, one right after the other.\n")
	if err := h.print(rows); err != nil {
		return err
	}
	model, err := h.measureCosts(ctx)
	if err != nil {
		return err
	}
	return model.printModel(os.Stdout)
}

// prepare creates the sources in folder and starts the servers.
func (h *host) prepare(ctx context.Context, folder string) error {
	var space unix.Statfs_t
	if err := unix.Statfs(folder, &space); err != nil {
		return fmt.Errorf("look at %s: %w", folder, err)
	}
	if free := int64(space.Bavail) * space.Bsize >> 20; free < int64(h.hostMiB) {
		return fmt.Errorf("%s has %d MiB free and needs %d: choose another tmpfs with -folder", h.folder, free, h.hostMiB)
	}
	h.big, h.linux = filepath.Join(folder, "big"), filepath.Join(folder, "linux")
	h.plain, h.dst, h.kibibyte = filepath.Join(folder, "plain"), filepath.Join(folder, "dst"), filepath.Join(folder, "kibibyte")
	if err := os.Mkdir(h.dst, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	fmt.Fprintln(h.log, "host: preparing")
	for name, bytes := range map[string]int64{h.big: int64(h.fileMiB) << 20, h.kibibyte: 1 << 10} {
		if err := writeRandom(name, bytes); err != nil {
			return err
		}
	}
	for _, argv := range [][]string{{"cp", "-a", h.tree, h.linux}, {"cp", "-al", h.linux, h.plain}, {"find", h.plain, "-type", "l", "-delete"}} {
		if _, err := output(ctx, argv...); err != nil {
			return err
		}
	}
	return h.start(ctx, folder)
}

// listen starts gdrcp's server.
func (h *host) listen(ctx context.Context) error {
	address, err := freeAddress()
	if err != nil {
		return err
	}
	s, err := h.serve(ctx, h.dst, address, "tcp "+address)
	if err == nil {
		h.servers, h.gdrcp = append(h.servers, s), address
	}
	return err
}

// start starts the servers.
func (h *host) start(ctx context.Context, folder string) (err error) {
	if err := h.listen(ctx); err != nil {
		return err
	}
	var s *server
	if s, h.rsync, err = startRsyncd(ctx, folder, h.dst); err != nil {
		return err
	}
	h.servers = append(h.servers, s)
	if s, h.sshConfig, err = startSSHD(ctx, folder); err != nil {
		return err
	}
	h.servers = append(h.servers, s)
	h.scp = []string{"scp", "-q", "-F", h.sshConfig}
	h.sshDst = "127.0.0.1:" + h.dst
	return nil
}

// copier returns a competitor that copies source to name under dst with a command.
func (h *host) copier(title, source, name string, argv ...string) *competitor {
	c := copying(title, source, filepath.Join(h.dst, name), argv...)
	remove := c.prepare
	c.prepare = func(ctx context.Context) error {
		total, err := count(source)
		return errors.Join(err, remove(ctx), h.touchMemory(ctx, int(total.bytes>>20)))
	}
	return c
}

// touchMemory writes a file and removes it, so that the pages for the next file are
// already assigned to this machine: a virtual machine's host takes back pages that were
// free for some time, and then each costs several times as much as the copy into it.
func (h *host) touchMemory(ctx context.Context, mib int) error {
	path := filepath.Join(h.dst, "touched")
	_, err := output(ctx, "dd", "status=none", "if=/dev/zero", "bs=1M", fmt.Sprintf("count=%d", mib), "of="+path)
	return errors.Join(err, os.Remove(path))
}

func (h *host) compareFile(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of "+h.file()+", seconds")
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{
		h.copier("gdrcp", h.big, "file-gdrcp", h.copyArgs("tcp", nil, h.big, h.gdrcp, "file-gdrcp")...),
		h.copier("gdrcp --encrypt", h.big, "file-sealed", h.copyArgs("tcp", []string{"--encrypt"}, h.big, h.gdrcp, "file-sealed")...),
		h.copier("cp", h.big, "file-cp", "cp", h.big, filepath.Join(h.dst, "file-cp")),
		h.copier("rsync", h.big, "file-rsync", "rsync", "-W", "--inplace", h.big, "rsync://"+h.rsync+"/dst/file-rsync"),
		h.copier("scp", h.big, "file-scp", append(h.scp, h.big, h.sshDst+"/file-scp")...),
	})
	return []row{
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "rsync -W --inplace", peers: values["rsync"], goal: 1.8},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "scp", peers: values["scp"], goal: 4},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "cp, no network", peers: values["cp"]},
		{name: h.file() + " file, --encrypt", unit: "s", ours: values["gdrcp --encrypt"], peer: "without", peers: values["gdrcp"], goal: encryptedFileGoal},
	}, err
}

// compareMemory compares digests with none, and encryption with none, without files.
func (h *host) compareMemory(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: memory to memory, MiB/s")
	memory := func(title, hash string, extra ...string) *competitor {
		return &competitor{name: title, run: func(ctx context.Context) (float64, error) {
			return h.memoryToMemory(ctx, "tcp", extra, h.gdrcp, hash, h.fileMiB)
		}}
	}
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{
		memory("no digests", "none"), memory("XXH3", "xxh3"), memory("XXH3, --encrypt", "xxh3", "--encrypt"),
	})
	name := h.file() + " of memory, XXH3"
	return []row{
		{name: name, unit: "MiB/s", ours: values["XXH3"], peer: "no digests", peers: values["no digests"], goal: verifiedGoal},
		{name: name + ", --encrypt", unit: "MiB/s", ours: values["XXH3, --encrypt"], peer: "without", peers: values["XXH3"], goal: encryptedGoal},
	}, err
}

func (h *host) compareTree(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: "+h.treeName+", seconds")
	total, err := count(h.linux)
	if err != nil {
		return nil, err
	}
	scp := h.copier("scp -r", h.plain, "tree-scp", append(h.scp, "-r", h.plain, h.sshDst+"/tree-scp")...)
	scp.cold = true // it takes long enough without
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{
		h.copier("gdrcp", h.linux, "tree-gdrcp", h.copyArgs("tcp", []string{"-rlpt"}, h.linux, h.gdrcp, "tree-gdrcp")...),
		h.copier("rsync", h.linux, "tree-rsync", "rsync", "-rlpt", "-W", h.linux+"/", "rsync://"+h.rsync+"/dst/tree-rsync"),
		h.copier("cp -a", h.linux, "tree-cp", "cp", "-a", h.linux, filepath.Join(h.dst, "tree-cp")),
		scp,
	})
	name := fmt.Sprintf("%s, %d files, %d MiB", h.treeName, total.files, total.bytes>>20)
	return []row{
		{name: name, unit: "s", ours: values["gdrcp"], peer: "rsync -rlpt -W", peers: values["rsync"], goal: 1.6},
		{name: name, unit: "s", ours: values["gdrcp"], peer: "cp -a, no network", peers: values["cp -a"], goal: 1.2},
		{name: name, unit: "s", ours: values["gdrcp"], peer: "scp -r", peers: values["scp -r"], goal: 10},
	}, err
}

// comparedGoal is the required rate of comparing two equal files, relative to that of
// reading and digesting both of them concurrently.
const comparedGoal = 0.8

// compareChecksum times --checksum of a file that is equal at both ends, and compares it
// with reading and digesting both, and with rsync's.
func (h *host) compareChecksum(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: --checksum of a file of "+h.file()+", seconds")
	there := filepath.Join(h.dst, "file-there")
	if _, err := output(ctx, "cp", h.big, there); err != nil {
		return nil, err
	}
	digest := []string{h.program, "manifest", "create", "-o", os.DevNull}
	const ours, both, rsync = "gdrcp", "both digested", "rsync"
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{
		{name: ours, run: timed(h.copyArgs("tcp", []string{"--checksum"}, h.big, h.gdrcp, "file-there")...)},
		{name: both, run: func(ctx context.Context) (float64, error) {
			return together(ctx, append(slices.Clone(digest), h.big), append(slices.Clone(digest), there))
		}},
		{name: rsync, run: timed("rsync", "--checksum", h.big, "rsync://"+h.rsync+"/dst/file-there")},
	})
	name := "--checksum of " + h.file() + ", the same"
	return []row{
		{name: name, unit: "s", ours: values[ours], peer: "both ends read and digest", peers: values[both], goal: comparedGoal},
		{name: name, unit: "s", ours: values[ours], peer: "rsync --checksum", peers: values[rsync]},
	}, errors.Join(err, os.Remove(there)) // the next comparison needs the memory
}

// timed returns a function that times a command.
func timed(argv ...string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) }
}

// shortRounds is how many runs replace one if the measured time is in milliseconds,
// because disturbances take as long.
const shortRounds = 5

// smallFile has no competitor: the time of a copy of 1 KiB beyond that of a run of the
// same program that does nothing, and for a copy to host:path, for which both ends are
// started, beyond that of ssh, is compared with a limit.
func (h *host) smallFile(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of 1 KiB, milliseconds")
	const nothing, copied, ssh, overSSH = "gdrcp --version", "gdrcp", "ssh host true", "gdrcp over ssh"
	values, err := alternate(ctx, h.log, shortRounds*h.rounds, []*competitor{
		inMilliseconds(&competitor{name: nothing, run: timed(h.program, "--version")}),
		inMilliseconds(h.copier(copied, h.kibibyte, "small-gdrcp", h.copyArgs("tcp", nil, h.kibibyte, h.gdrcp, "small-gdrcp")...)),
		inMilliseconds(&competitor{name: ssh, run: timed("ssh", "-F", h.sshConfig, "127.0.0.1", "true")}),
		inMilliseconds(h.copier(overSSH, h.kibibyte, "ssh-gdrcp", h.copyOverSSH(h.sshConfig, h.kibibyte, h.sshDst+"/ssh-gdrcp")...)),
	})
	return []row{
		{name: "1 KiB file, beyond gdrcp --version", unit: "ms", ours: beyond(values[copied], values[nothing]), goal: 5},
		{name: "1 KiB file to host:path, beyond ssh host true", unit: "ms", ours: beyond(values[overSSH], values[ssh]), goal: 60},
	}, err
}

// inMilliseconds makes a competitor be measured in ms.
func inMilliseconds(c *competitor) *competitor {
	run := c.run
	c.run = func(ctx context.Context) (float64, error) {
		took, err := run(ctx)
		return took * 1e3, err
	}
	return c
}

// beyond returns by how much each value of ours exceeded that of base in the same round.
func beyond(ours, base []float64) []float64 {
	more := make([]float64, len(ours))
	for i, v := range ours {
		more[i] = v - base[i]
	}
	return more
}

// writeRandom writes a file of incompressible bytes.
func writeRandom(name string, bytes int64) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return fmt.Errorf("write source: %w", err)
	}
	_, err = io.CopyBuffer(f, io.LimitReader(rand.NewChaCha8([32]byte{1}), bytes), make([]byte, 1<<20))
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		return fmt.Errorf("write source: %w", err)
	}
	return nil
}
