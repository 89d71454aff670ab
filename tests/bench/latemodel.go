package main

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
)

// lateCosts are what the stages of copies to and from a late disk take, measured each by itself.
type lateCosts struct {
	write, read         float64 // seconds for a request of 1 MiB
	writeBusy, readBusy float64 // of the processors, for a MiB
	digestBusy          float64 // for a MiB
	startMemory         float64 // seconds of a copy of nearly nothing that stays in memory
	startDisk           float64 // and of one to the disk, with its syncs
	sync                float64 // seconds of one sync
}

const (
	// startMiB is the least file that has a journal, of which a copy makes all the syncs of a
	// large one but those on the way.
	startMiB = 16
	// lateRequests are those that a copy has under way on the guest's two processors.
	lateRequests = 8
)

// lateEnds are competitors that measure what a copy takes at its start and end.
func (o options) lateEnds(ctx context.Context, folder, to string, before ...string) ([]*competitor, error) {
	little := filepath.Join(folder, "little")
	if _, err := output(ctx, "dd", "status=none", "bs=1M", fmt.Sprintf("count=%d", startMiB), "if=/dev/urandom", "of="+little); err != nil {
		return nil, err
	}
	copying := func(name, to string) *competitor {
		return &competitor{name: name, prepare: removal(to), run: func(ctx context.Context) (float64, error) {
			return seconds(ctx, append(slices.Clone(before), o.program, "-q", little, to)...)
		}}
	}
	return []*competitor{
		copying("little in memory", little+".copy"),
		copying("little to it", to+".little"),
		{name: "sync", prepare: allocation(to+".sync", 1), run: func(ctx context.Context) (float64, error) {
			return seconds(ctx, "dd", "status=none", "bs=1M", "count=1", "if="+little, "of="+to+".sync", "oflag=direct", "conv=notrunc,fsync")
		}},
	}, nil
}

// lateCostsOf takes the costs from what measured them. The dd moved so many MiB.
func lateCostsOf(values map[string][]float64, b busyTime, ddMiB int) lateCosts {
	c := lateCosts{
		read:      1 / median(values["dd from it"]),
		writeBusy: median(b["dd to it"]) / float64(ddMiB), readBusy: median(b["dd from it"]) / float64(ddMiB),
		digestBusy: 1 / median(values["digests"]),
	}
	c.follow(values)
	return c
}

// follow takes from what measured it what changes with how late the disk is, or with how many
// processors a copy takes the guest to have.
func (c *lateCosts) follow(values map[string][]float64) {
	c.startMemory = median(values["little in memory"])
	c.write, c.startDisk = 1/median(values["dd to it"]), median(values["little to it"])
	c.sync = median(values["sync"]) - c.write
}

// from are the costs of a copy from the disk into memory.
func (c lateCosts) from(mib int) copyCosts {
	return steady(float64(mib), c.startMemory, stage{"disk reads", lateRequests, c.read}, processors(1, c.readBusy+c.digestBusy))
}

// to are the costs of a copy from memory to the disk, and fromTo of one from the disk to itself.
func (c lateCosts) to(mib int) copyCosts { return c.withMarks(c.steadyTo(mib, lateRequests)) }

func (c lateCosts) fromTo(mib int) copyCosts {
	costs := c.steadyTo(mib, lateRequests)
	costs.spells[0].stages = []stage{
		{"disk writes", lateRequests, c.write}, {"disk reads", lateRequests, c.read},
		processors(1, c.writeBusy+c.readBusy+c.digestBusy),
	}
	return c.withMarks(costs)
}

// steadyTo are the costs of a copy from memory with so many requests under way, without marks.
func (c lateCosts) steadyTo(mib, requests int) copyCosts {
	return steady(float64(mib), c.startDisk-startMiB/float64(requests)*c.write, c.writes(requests)...)
}

// writes are the stages of a copy from memory.
func (c lateCosts) writes(requests int) []stage {
	return []stage{{"disk writes", float64(requests), c.write}, processors(1, c.writeBusy+c.digestBusy)}
}

// The rule of marks, which bring to the disk on the way what has arrived (xfer/resume.go): no
// write ends while one does. The disk rests from them for markRest times as long as one took,
// which is two syncs, of the file and of its journal.
const (
	markAfter, markRest, longestRest = 2.0, 20, 10.0
	syncsOfMark                      = 2
)

// withMarks adds what the marks on the way take.
func (c lateCosts) withMarks(costs copyCosts) copyCosts {
	mark := syncsOfMark * c.sync
	last := costs.forecast().seconds - costs.fixedSeconds
	for at := markAfter; at < last; at += mark + min(markRest*mark, longestRest) {
		costs.fixedSeconds += c.sync
	}
	return costs
}
