package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Everything in this benchmark that depends on gdrcp's command line and its --json events
// is in this file.

// makeKey creates the key that servers and clients of this benchmark share, and sets it in
// their environment.
func (o options) makeKey(ctx context.Context, dir string) error {
	file := filepath.Join(dir, "key")
	if _, err := output(ctx, o.program, "key", "new", "bench", "--key-file", file); err != nil {
		return err
	}
	return os.Setenv("GDRCP_KEY_FILE", file)
}

// serve starts `gdrcp serve` on root and waits until it prints that it serves on reach, a
// part of a line such as "tcp 127.0.0.1:7473".
func (o options) serve(ctx context.Context, root, listen, reach string) (*server, error) {
	return startServer(ctx, reach, o.program, "serve", "--root", root, "--listen", listen)
}

// copyArgs returns the command that copies source to path on the server at host, with
// extra options.
func (o options) copyArgs(transport string, extra []string, source, host, path string) []string {
	args := append([]string{o.program, "-q", "--transport", transport}, extra...)
	return append(args, source, "rdma://"+host+"/"+path)
}

// copyOverSSH returns the command that copies source to dst, which is host:path, with the
// same program on the remote side.
func (o options) copyOverSSH(config, source, dst string) []string {
	return []string{o.program, "-q", "--rsh", "ssh -F '" + config + "'", "--remote-path", "'" + o.program + "'", source, dst}
}

// memoryToMemory runs gdrcp's own bench, with extra options, and returns MiB/s.
func (o options) memoryToMemory(ctx context.Context, transport string, extra []string, host, hash string, mib int) (float64, error) {
	args := append([]string{o.program, "bench", "--json", "--transport", transport, "--hash", hash,
		"--bytes", strconv.Itoa(mib << 20), "--rounds", "0"}, extra...)
	events, err := output(ctx, append(args, "rdma://"+host)...)
	if err != nil {
		return 0, err
	}
	return eventField(events, "bandwidth", map[string]string{"hash": hash}, "mib_per_s")
}

// eventField finds, in a list of JSON objects, one per line, the last one of the given
// kind whose fields match, and returns its field name, or outer.name, which must be a
// positive number.
func eventField(lines, event string, match map[string]string, name string) (float64, error) {
	value, found := 0.0, false
	for line := range strings.Lines(lines) {
		var fields map[string]any
		if err := json.Unmarshal([]byte(line), &fields); err != nil {
			return 0, fmt.Errorf("decode event %q: %w", line, err)
		}
		if fields["event"] != event {
			continue
		}
		matches := true
		for k, want := range match {
			matches = matches && fields[k] == want
		}
		field := name
		if outer, inner, ok := strings.Cut(name, "."); ok {
			fields, _ = fields[outer].(map[string]any)
			field = inner
		}
		if number, ok := fields[field].(float64); ok && matches {
			value, found = number, true
		}
	}
	if !found || value <= 0 {
		return 0, fmt.Errorf("no %s event with a positive %s in: %s", event, name, tail(lines))
	}
	return value, nil
}
