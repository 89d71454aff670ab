package main

import (
	"context"
	"fmt"
)

// shortRounds is how many runs stand for one where a run takes milliseconds:
// what else the machine does takes as long.
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

// inMilliseconds lets a competitor run a command that takes no longer.
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
