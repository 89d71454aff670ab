package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// resumeGoal is the required speed of resuming after nine tenths of a file, relative to
// copying the whole file.
const resumeGoal = 5

// compareResume times a copy that resumes after nine tenths of a file, and compares it
// with copying the whole file.
func (h *host) compareResume(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of "+mebibytes(h.resumeMiB)+" of which nine tenths arrived earlier, seconds")
	source := filepath.Join(filepath.Dir(h.big), "resumed")
	defer os.Remove(source) // the next comparison needs the memory
	if err := writeRandom(source, int64(h.resumeMiB)<<20); err != nil {
		return nil, err
	}
	again := h.copyArgs("tcp", nil, source, h.gdrcp, "file-resumed")
	resumed := h.copier("gdrcp, resumed", source, "file-resumed", again...)
	resumed.prepare = func(ctx context.Context) error {
		return errors.Join(h.cutOff(ctx, source, "file-resumed"), h.touchMemory(ctx, h.resumeMiB/5))
	}
	whole := h.copier("gdrcp, whole", source, "file-whole", h.copyArgs("tcp", nil, source, h.gdrcp, "file-whole")...)
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{whole, resumed})
	name := "nine tenths of " + mebibytes(h.resumeMiB) + " resumed"
	return []row{
		{name: name, unit: "s", ours: values["gdrcp, resumed"], peer: "all of it", peers: values["gdrcp, whole"], goal: resumeGoal},
	}, err
}

// cutOff kills a copy when nine tenths of its file have arrived. The copy is slowed down,
// so that it does not finish first.
func (h *host) cutOff(ctx context.Context, source, name string) error {
	argv := h.copyArgs("tcp", []string{"--bwlimit", "512M"}, source, h.gdrcp, name)
	if err := os.RemoveAll(filepath.Join(h.dst, name)); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for {
		partial, bytes := h.partial()
		if bytes >= int64(h.resumeMiB)<<20/10*9 {
			err := cmd.Process.Kill()
			<-ended
			return errors.Join(err, awaitUnused(ctx, partial))
		}
		select {
		case err := <-ended:
			return fmt.Errorf("the copy was not cut off: %w", err)
		case <-time.After(time.Millisecond):
		}
	}
}

// partial finds the partial file in the server's directory, and its size.
func (h *host) partial() (path string, bytes int64) {
	entries, _ := os.ReadDir(h.dst) // files come and go
	for _, e := range entries {
		st, err := e.Info()
		if err == nil && strings.HasPrefix(e.Name(), ".gdrcp-") && st.Size() > bytes {
			path, bytes = filepath.Join(h.dst, e.Name()), st.Size()
		}
	}
	return path, bytes
}

// awaitUnused waits until the server has closed a partial file.
func awaitUnused(ctx context.Context, path string) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("the copy came to its end before it was cut off")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	for unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}
