package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"
)

const (
	// comparedGoal is the share that comparing two equal files reaches of the rate at which
	// both ends read and digest theirs, each by itself and at the same time.
	comparedGoal = 0.8
	// changedPieces is the number of pieces that differ in the file that changed a little.
	changedPieces = 10
)

// compareChecksum times --checksum of a file that is the same at both ends, and of one
// that differs in some pieces. The first is held against reading and digesting both, and
// both are held against rsync's.
func (h *host) compareChecksum(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: --checksum of a file of "+h.file()+", seconds")
	there := filepath.Join(h.dst, "file-there")
	if err := copyWhole(h.big, there); err != nil {
		return nil, err
	}
	same := &competitor{name: "gdrcp, same", run: h.timed(h.copyArgs("tcp", []string{"--checksum"}, h.big, h.gdrcp, "file-there"))}
	digest := &competitor{name: "both digested", run: func(ctx context.Context) (float64, error) {
		start, ended := time.Now(), make(chan error, 2)
		for _, path := range []string{h.big, there} {
			go func() {
				_, err := output(ctx, h.program, "manifest", "create", "-o", os.DevNull, path)
				ended <- err
			}()
		}
		err := errors.Join(<-ended, <-ended)
		return time.Since(start).Seconds(), err
	}}
	rsync := &competitor{name: "rsync, same", run: h.timed([]string{"rsync", "--checksum", h.big, "rsync://" + h.rsync + "/dst/file-there"})}
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{same, digest, rsync})
	if err = errors.Join(err, os.Remove(there)); err != nil { // what follows needs the memory
		return nil, err
	}
	changed := h.changedCopier("gdrcp, changed", "file-changed", h.copyArgs("tcp", []string{"--checksum"}, h.big, h.gdrcp, "file-changed"))
	rsyncChanged := h.changedCopier("rsync, changed", "file-delta", []string{"rsync", "--no-whole-file", h.big, "rsync://" + h.rsync + "/dst/file-delta"})
	others, err := alternate(ctx, h.log, h.rounds, []*competitor{changed, rsyncChanged})
	name := "--checksum of " + h.file()
	return []row{
		{name: name + ", the same", unit: "s", ours: values["gdrcp, same"], peer: "both ends read and digest", peers: values["both digested"], goal: comparedGoal},
		{name: name + ", the same", unit: "s", ours: values["gdrcp, same"], peer: "rsync --checksum", peers: values["rsync, same"]},
		{name: fmt.Sprintf("%s, %d pieces differ", name, changedPieces), unit: "s", ours: others["gdrcp, changed"], peer: "rsync --no-whole-file", peers: others["rsync, changed"]},
	}, err
}

// timed runs a command.
func (h *host) timed(argv []string) func(context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) { return seconds(ctx, argv...) }
}

// changedCopier copies the file to one that differs in some pieces.
func (h *host) changedCopier(title, name string, argv []string) *competitor {
	c := h.copier(title, h.big, name, argv...)
	c.prepare = func(context.Context) error {
		path := filepath.Join(h.dst, name)
		if err := copyWhole(h.big, path); err != nil {
			return err
		}
		return errors.Join(changePieces(path, h.fileMiB), h.touchMemory(h.fileMiB))
	}
	return c
}

// changePieces changes some pieces of a file of so many MiB.
func changePieces(path string, mib int) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	size := int64(mib) << 20
	for i := range int64(changedPieces) {
		if _, e := f.WriteAt([]byte("changed"), i*(size/changedPieces)); err == nil {
			err = e
		}
	}
	// rsync's quick check must not take it for the same.
	return errors.Join(err, f.Sync(), f.Close(), os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0)))
}

// copyWhole copies a file.
func copyWhole(from, to string) error {
	src, err := os.Open(from)
	if err != nil {
		return err
	}
	defer src.Close()
	dst, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(dst, src)
	return errors.Join(err, dst.Close())
}
