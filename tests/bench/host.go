package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// encryptedGoal is what --encrypt leaves at least of the plain rate, from memory to
	// memory, and encryptedFileGoal that of files.
	encryptedGoal     = 0.65
	encryptedFileGoal = 0.6
	// verifiedGoal is what digests at both ends leave at least of the rate.
	verifiedGoal = 0.9
	// loopbackGoal is how much of what a TCP connection carries a file gets at least.
	loopbackGoal = 0.75
)

// host is what the comparisons over loopback TCP work with.
type host struct {
	options
	big, small, linux string   // sources
	kibibyte          string   // likewise, of 1 KiB
	plain             string   // linux without its few links, which scp cannot copy
	dst               string   // where every server writes
	gdrcp, rsync      string   // servers: host:port
	iperf             string   // likewise, iperf3's
	sshConfig         string   // leads to an SSH server
	scp               []string // the command up to its sources
	sshDst            string   // dst in scp's words, and in gdrcp's
	servers           []*server
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
		{"file", h.compareFile}, {"resume", h.compareResume}, {"checksum", h.compareChecksum}, {"disk", h.compareDisk}, {"rails", h.compareRails},
		{"memory", h.compareMemory}, {"tree", h.compareTree}, {"first", h.firstByte}, {"small", h.smallFile}, {"ssh", h.smallFileOverSSH},
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
		"(its defaults); rsync and scp do not sync, which on tmpfs costs nothing. rsync\n" +
		"is its daemon, without ssh. The time of iperf3 is that of the file at its rate. scp runs over a server of its own, with\n" +
		"its defaults and with its fastest cipher. scp -r has no warm-up, and gets the tree without its few links, which it\n" +
		"cannot copy. What is beyond a command is the difference of two runs, one right after the other.\n")
	if err := h.print(rows); err != nil {
		return err
	}
	model, err := h.measureCosts(ctx)
	if err != nil {
		return err
	}
	return model.printModel(os.Stdout)
}

// prepare makes the sources in folder and starts the servers.
func (h *host) prepare(ctx context.Context, folder string) error {
	var space unix.Statfs_t
	if err := unix.Statfs(folder, &space); err != nil {
		return fmt.Errorf("look at %s: %w", folder, err)
	}
	if free := int64(space.Bavail) * space.Bsize >> 20; free < int64(h.hostMiB) {
		return fmt.Errorf("%s has %d MiB free and needs %d: choose another tmpfs with -folder", h.folder, free, h.hostMiB)
	}
	h.big, h.small, h.linux = filepath.Join(folder, "big"), filepath.Join(folder, "small"), filepath.Join(folder, "linux")
	h.plain, h.dst = filepath.Join(folder, "plain"), filepath.Join(folder, "dst")
	h.kibibyte = filepath.Join(folder, "kibibyte")
	if err := os.Mkdir(h.dst, 0o755); err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	fmt.Fprintln(h.log, "host: preparing")
	for name, bytes := range map[string]int64{h.big: int64(h.fileMiB) << 20, h.small: int64(h.firstMiB) << 20, h.kibibyte: 1 << 10} {
		if err := writeRandom(name, bytes); err != nil {
			return err
		}
	}
	if _, err := output(ctx, "cp", "-a", h.tree, h.linux); err != nil {
		return err
	}
	if _, err := output(ctx, "cp", "-al", h.linux, h.plain); err != nil {
		return err
	}
	if _, err := output(ctx, "find", h.plain, "-type", "l", "-delete"); err != nil {
		return err
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
	if s, h.iperf, err = startIperf(ctx); err != nil {
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

// copier makes a competitor that copies source to name under dst by a command.
func (h *host) copier(title, source, name string, argv ...string) *competitor {
	copied := filepath.Join(h.dst, name)
	return &competitor{
		name: title,
		prepare: func(context.Context) error {
			total, err := count(source)
			return errors.Join(err, os.RemoveAll(copied), h.touchMemory(int(total.bytes>>20)))
		},
		run: func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) },
		check: func(ctx context.Context, thorough bool) error {
			defer os.RemoveAll(copied) // before the next one needs the memory
			return compare(ctx, source, copied, thorough)
		},
	}
}

// touchMemory writes a file and removes it, so that the pages that the next file takes are
// this machine's: a virtual machine's host takes back those that were free for some time,
// and then each costs several times as much as the copy into it.
func (h *host) touchMemory(mib int) error {
	if mib == 0 {
		return nil
	}
	path := filepath.Join(h.dst, "touched")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	block := make([]byte, 1<<20)
	for range mib {
		if _, err = f.Write(block); err != nil {
			break
		}
	}
	return errors.Join(err, f.Close(), os.Remove(path))
}

func (h *host) compareFile(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of "+h.file()+", seconds")
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{
		h.copier("gdrcp", h.big, "file-gdrcp", h.copyArgs("tcp", nil, h.big, h.gdrcp, "file-gdrcp")...),
		h.copier("gdrcp --encrypt", h.big, "file-sealed", h.copyArgs("tcp", []string{"--encrypt"}, h.big, h.gdrcp, "file-sealed")...),
		h.copier("cp", h.big, "file-cp", "cp", h.big, filepath.Join(h.dst, "file-cp")),
		h.copier("rsync", h.big, "file-rsync", "rsync", "-W", "--inplace", h.big, "rsync://"+h.rsync+"/dst/file-rsync"),
		h.copier("scp", h.big, "file-scp", append(h.scp, h.big, h.sshDst+"/file-scp")...),
		h.copier("scp -c aes128-gcm", h.big, "file-gcm", append(h.scp, "-c", "aes128-gcm@openssh.com", h.big, h.sshDst+"/file-gcm")...),
		{name: "iperf3", run: func(ctx context.Context) (float64, error) { return iperfSeconds(ctx, h.iperf, h.fileMiB) }},
	})
	return []row{
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "rsync -W --inplace", peers: values["rsync"], goal: 1.8},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "scp", peers: values["scp"], goal: 4},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "scp -c aes128-gcm", peers: values["scp -c aes128-gcm"]},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "cp, no network", peers: values["cp"]},
		{name: h.file() + " file", unit: "s", ours: values["gdrcp"], peer: "iperf3, no files", peers: values["iperf3"], goal: loopbackGoal},
		{name: h.file() + " file, --encrypt", unit: "s", ours: values["gdrcp --encrypt"], peer: "without", peers: values["gdrcp"], goal: encryptedFileGoal},
	}, err
}

// compareMemory holds digests against none, and encryption against none, where no file is
// in the way.
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
	scp.cold = true // it takes long enough
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

// firstByte has no peer: the limit is the goal. It is measured from outside, by
// a relay between gdrcp and its server.
func (h *host) firstByte(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: first byte on the wire, milliseconds")
	r, err := startRelay(h.gdrcp)
	if err != nil {
		return nil, err
	}
	defer r.stop()
	ring := []string{"--chunk-size", "1M", "--slots", "16"}
	argv := h.copyArgs("tcp", ring, h.small, r.address(), "first-gdrcp")
	c := h.copier("gdrcp", h.small, "first-gdrcp")
	c.run = func(ctx context.Context) (float64, error) {
		r.reset()
		start := time.Now()
		if _, err := output(ctx, argv...); err != nil {
			return 0, err
		}
		first, err := r.firstPayload()
		return float64(first.Sub(start)) / float64(time.Millisecond), err
	}
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{c})
	return []row{{name: "first 64 KiB on the wire after start, ring of 16 MiB", unit: "ms", ours: values["gdrcp"], goal: 150}}, err
}

// writeRandom writes a file of bytes that do not compress.
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
