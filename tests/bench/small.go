package main

import (
	"context"
	"fmt"
)

// shortRounds is how many runs stand for one where what is measured takes
// milliseconds: what else the machine does takes as long.
const shortRounds = 5

// smallFile has no peer: what a copy of 1 KiB takes beyond a run of the same
// program that does nothing is held against a limit.
func (h *host) smallFile(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of 1 KiB, milliseconds")
	values, err := alternate(ctx, h.log, shortRounds*h.rounds, []*competitor{
		inMilliseconds(&competitor{name: "gdrcp --version"}, h.program, "--version"),
		inMilliseconds(h.copier("gdrcp", h.kibibyte, "small-gdrcp"), h.copyArgs("tcp", nil, h.kibibyte, h.gdrcp, "small-gdrcp")...),
	})
	if err != nil {
		return nil, err
	}
	return []row{{name: "1 KiB file, beyond gdrcp --version", unit: "ms", ours: beyond(values["gdrcp"], values["gdrcp --version"]), goal: 5}}, nil
}

// smallFileOverSSH is likewise, but both ends are started for the copy, the far
// one through ssh. What ssh itself takes is not gdrcp's.
func (h *host) smallFileOverSSH(ctx context.Context) ([]row, error) {
	fmt.Fprintln(h.log, "host: a file of 1 KiB over ssh, milliseconds")
	values, err := alternate(ctx, h.log, shortRounds*h.rounds, []*competitor{
		inMilliseconds(&competitor{name: "ssh host true"}, "ssh", "-F", h.sshConfig, "127.0.0.1", "true"),
		inMilliseconds(h.copier("gdrcp", h.kibibyte, "ssh-gdrcp"), h.copyOverSSH(h.sshConfig, h.kibibyte, h.sshDst+"/ssh-gdrcp")...),
	})
	if err != nil {
		return nil, err
	}
	return []row{{name: "1 KiB file to host:path, beyond ssh host true", unit: "ms", ours: beyond(values["gdrcp"], values["ssh host true"]), goal: 60}}, nil
}

// inMilliseconds has a competitor run a command and measured in ms.
func inMilliseconds(c *competitor, argv ...string) *competitor {
	c.run = func(ctx context.Context) (float64, error) {
		took, err := seconds(ctx, argv...)
		return took * 1e3, err
	}
	return c
}

// beyond is by how much each of ours was more than what ran right before it, in
// the same round.
func beyond(ours, base []float64) []float64 {
	more := make([]float64, len(ours))
	for i, v := range ours {
		more[i] = v - base[i]
	}
	return more
}
