package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// frameTime is how often the screen is looked at: half as often as the program
// draws its progress anew, to keep the picture small.
const frameTime = 200 * time.Millisecond

// typingTime is what the typing of a command line takes in the picture, and
// restTime how long its last output is shown before the next.
const (
	typingTime = 1200 * time.Millisecond
	restTime   = 1800 * time.Millisecond
)

// typed shows a command line letter by letter behind a prompt, without running it.
func (s *screen) typed(line string) {
	s.write("$ ")
	s.frame(0)
	for i := range line {
		s.write(line[i : i+1])
		s.frame(typingTime / time.Duration(len(line)))
	}
	if line != "" {
		s.write("\r\n")
	}
	s.frame(typingTime / 4)
}

// record runs a command line in dir by a shell in a pseudo-terminal of the
// screen's size, and takes a frame whenever it has shown something.
func (s *screen) record(ctx context.Context, dir, line string) error {
	master, tty, err := openTerminal(s.columns, s.rows)
	if err != nil {
		return err
	}
	defer master.Close()
	cmd := exec.CommandContext(ctx, "sh", "-c", line)
	cmd.Dir = dir
	cmd.Env = []string{"HOME=" + dir, "PATH=" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"), "TERM=xterm", "GDRCP_RSH=here"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	err = cmd.Start()
	tty.Close() // or the reading below would not end
	if err != nil {
		return err
	}
	last, buf := time.Now(), make([]byte, 4096)
	for {
		n, err := master.Read(buf)
		if n > 0 {
			now := time.Now()
			s.frame(now.Sub(last)) // what was shown until now
			last = now
			s.write(string(buf[:n]))
			time.Sleep(frameTime)
		}
		if err != nil {
			// Linux says EIO of a terminal whose other end nobody has open.
			if !errors.Is(err, io.EOF) && !errors.Is(err, syscall.EIO) {
				return errors.Join(err, cmd.Wait())
			}
			break
		}
	}
	s.frame(restTime)
	return cmd.Wait()
}

// openTerminal makes a pseudo-terminal of that size: pty(7).
func openTerminal(columns, rows int) (master, tty *os.File, err error) {
	master, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, err
	}
	fd := int(master.Fd())
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	err = errors.Join(err, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0),
		unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: uint16(rows), Col: uint16(columns)}))
	if err == nil {
		tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	if err != nil {
		master.Close()
		return nil, nil, err
	}
	return master, tty, nil
}
