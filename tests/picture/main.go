// Picture records what a real run of the program shows on a terminal, and writes
// it as an animated SVG for the README:
//
//	picture GDRCP FILE.svg
//
// It runs the program GDRCP in a pseudo-terminal, one command line after the
// other, in a new folder with a tree made for that. The far end of its copies is
// the same program on the same machine: a shell stands for ssh, and the data goes
// by TCP over loopback. Nothing that is shown is made up but the typing of the
// command lines.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
)

const usage = "usage: picture GDRCP FILE.svg"

// columns and rows are the size of the terminal.
const (
	columns = 104
	rows    = 7
)

// commands are what is typed, one after the other. node2 stands for this machine.
func commands() []string {
	return []string{
		"gdrcp -a checkpoint-4000 node2:data/",
		"echo more >>checkpoint-4000/tokens/7",
		"gdrcp -a checkpoint-4000 node2:data/",
	}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

// run makes the tree, runs the commands and writes the picture.
func run(ctx context.Context, args []string) error {
	if len(args) != 2 {
		return errors.New(usage)
	}
	program, err := filepath.Abs(args[0])
	if err != nil {
		return err
	}
	// The copy is of memory to memory, where there is room for it.
	base := os.Getenv("TMPDIR")
	if base == "" {
		base = "/dev/shm"
	}
	dir, err := os.MkdirTemp(base, "gdrcp-picture-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := makeTree(dir, program); err != nil {
		return err
	}
	s := newScreen(columns, rows)
	for _, line := range commands() {
		s.typed(line)
		if err := s.record(ctx, dir, line); err != nil {
			return fmt.Errorf("%s: %w", line, err)
		}
	}
	s.typed("")
	picture, err := s.svg()
	if err != nil {
		return err
	}
	return os.WriteFile(args[1], picture, 0o666)
}

// The tree that is copied: like a checkpoint, a few large files and many small
// ones.
const (
	largeFiles = 6
	largeBytes = 256 << 20
	smallFiles = 1200
	smallBytes = 8 << 10
)

// makeTree fills dir with what the commands need: the tree, the directory data
// that they copy to, the program, and a remote shell.
func makeTree(dir, program string) error {
	for _, sub := range []string{"bin", "data", "checkpoint-4000/tokens"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o777); err != nil {
			return err
		}
	}
	if err := os.Symlink(program, filepath.Join(dir, "bin", "gdrcp")); err != nil {
		return err
	}
	// ssh calls it with options, the host, and the words of a command.
	shell := "#!/bin/sh\nshift\ncd \"$HOME\" && exec sh -c \"$*\"\n"
	if err := os.WriteFile(filepath.Join(dir, "bin", "here"), []byte(shell), 0o777); err != nil {
		return err
	}
	large, small := random(largeBytes), random(smallBytes)
	for i := range largeFiles {
		name := filepath.Join(dir, "checkpoint-4000", fmt.Sprintf("layer-%d.safetensors", i))
		if err := os.WriteFile(name, large, 0o666); err != nil {
			return err
		}
	}
	for i := range smallFiles {
		if err := os.WriteFile(filepath.Join(dir, "checkpoint-4000/tokens", strconv.Itoa(i)), small, 0o666); err != nil {
			return err
		}
	}
	return nil
}

// random is bytes that look random, the same ones each time.
func random(n int) []byte {
	data, x := make([]byte, n), uint64(88172645463325252)
	for i := 0; i+8 <= n; i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		for j := range 8 {
			data[i+j] = byte(x >> (8 * j))
		}
	}
	return data
}
