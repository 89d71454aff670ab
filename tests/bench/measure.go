package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// competitor is something that is timed repeatedly.
type competitor struct {
	name string
	// cold skips the run that warms up, for a competitor that takes so long that its first
	// access to memory does not matter.
	cold bool
	// prepare, if not nil, runs untimed before each run.
	prepare func(context.Context) error
	// run does the work once and returns the measured value.
	run func(context.Context) (float64, error)
	// check, if not nil, runs untimed after each run: thoroughly after the first, cheaply
	// after the others.
	check func(ctx context.Context, thorough bool) error
}

func (c *competitor) once(ctx context.Context, thorough bool) (value, cpu float64, err error) {
	if c.prepare != nil {
		if err := c.prepare(ctx); err != nil {
			return 0, 0, fmt.Errorf("%s: prepare: %w", c.name, err)
		}
	}
	before := childrenTook()
	if value, err = c.run(ctx); err != nil {
		return 0, 0, fmt.Errorf("%s: %w", c.name, err)
	}
	cpu = childrenTook() - before
	if c.check != nil {
		if err := c.check(ctx, thorough); err != nil {
			return 0, 0, fmt.Errorf("%s: what it copied: %w", c.name, err)
		}
	}
	return value, cpu, nil
}

const inCPU = ", CPU s"

// childrenTook returns the processor time of all commands that have ended, in seconds.
func childrenTook() float64 {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_CHILDREN, &u) // cannot fail
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}

// alternate runs each competitor once to warm up, unless it is cold, and then rounds times
// in turn, so that other load on the machine affects all of them equally. It returns the
// values of run, by name, and the processor time of the commands that it ran, in seconds,
// by name and inCPU.
func alternate(ctx context.Context, log io.Writer, rounds int, competitors []*competitor) (map[string][]float64, error) {
	values := map[string][]float64{}
	for round := range rounds + 1 { // round 0 warms up
		for _, c := range competitors {
			if round == 0 && c.cold {
				continue
			}
			value, cpu, err := c.once(ctx, round == 0 || round == 1 && c.cold)
			if err != nil {
				return nil, err
			}
			word := "warm-up"
			if round > 0 {
				values[c.name] = append(values[c.name], value)
				values[c.name+inCPU] = append(values[c.name+inCPU], cpu)
				word = fmt.Sprintf("round %d", round)
			}
			fmt.Fprintf(log, "  %-8s %-40s %.4g\n", word, c.name, value)
		}
	}
	return values, nil
}

// output runs a command and returns its standard output. The error includes the end of the
// output.
func output(ctx context.Context, argv ...string) (string, error) {
	var stdout, stderr strings.Builder
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", strings.Join(argv, " "), errors.Join(err, ctx.Err()), tail(stdout.String()+stderr.String()))
	}
	return stdout.String(), nil
}

// seconds runs a command and returns how long it took, from start to exit.
func seconds(ctx context.Context, argv ...string) (float64, error) {
	start := time.Now()
	_, err := output(ctx, argv...)
	return time.Since(start).Seconds(), err
}

// together runs commands concurrently and returns how long all of them took.
func together(ctx context.Context, commands ...[]string) (float64, error) {
	start, ended := time.Now(), make(chan error, len(commands))
	for _, argv := range commands {
		go func() {
			_, err := output(ctx, argv...)
			ended <- err
		}()
	}
	var err error
	for range commands {
		err = errors.Join(err, <-ended)
	}
	return time.Since(start).Seconds(), err
}

// rate converts the time for a number of MiB to MiB/s.
func rate(mib int, seconds float64) float64 { return float64(mib) / seconds }

func tail(s string) string {
	const most = 800
	s = strings.TrimSpace(s)
	if len(s) > most {
		s = "…" + s[len(s)-most:]
	}
	return s
}
