package main

import (
	"fmt"
	"runtime"
	"strings"
)

// The model of a copy, of those in the bed and of those on machines that are not here: every
// byte passes each stage, the stages work side by side, and so the copy is as fast as the one
// that is full first. Beside that there is what a copy takes before its first byte and after
// its last one.

// modelWithin is how far a copy may be from what the model says of it.
const modelWithin = 0.15

// stage is a part of a copy: so many rails, processors, workers or requests work at once, and
// each takes so long for a MiB.
type stage struct {
	name                  string
	atOnce, secondsPerMiB float64
}

// mibPerSecond is what the stage lets pass.
func (s stage) mibPerSecond() float64 { return s.atOnce / s.secondsPerMiB }

// processors is the stage of this machine's, which are busy so long for a MiB, for a share of
// the time at most.
func processors(share, busyPerMiB float64) stage {
	return stage{"processors", share * float64(runtime.NumCPU()), busyPerMiB}
}

// spell is a part of a copy's time in which its stages stay the same.
type spell struct {
	seconds float64 // of the last one: whatever is left
	stages  []stage
}

// copyCosts are what the model takes of a copy.
type copyCosts struct {
	mib          float64
	fixedSeconds float64 // before the first byte and after the last one
	spells       []spell
}

// forecast is what the model says of a copy.
type forecast struct {
	seconds      float64
	mibPerSecond float64
	full         stage // the one that is full first, in the last spell
}

// steady are the costs of a copy whose stages stay the same.
func steady(mib, fixedSeconds float64, stages ...stage) copyCosts {
	return copyCosts{mib, fixedSeconds, []spell{{0, stages}}}
}

// forecast works out how long the copy takes.
func (c copyCosts) forecast() (f forecast) {
	f.seconds = c.fixedSeconds
	left := c.mib
	for i, s := range c.spells {
		f.full = fullFirst(s.stages)
		took, last := left/f.full.mibPerSecond(), i == len(c.spells)-1
		if took > s.seconds && !last {
			took = s.seconds
		}
		f.seconds += took
		left -= took * f.full.mibPerSecond()
		if left <= 0 {
			break
		}
	}
	f.mibPerSecond = c.mib / f.seconds
	return f
}

// fullFirst is the stage that lets the least pass.
func fullFirst(stages []stage) stage {
	full := stages[0]
	for _, s := range stages[1:] {
		if s.mibPerSecond() < full.mibPerSecond() {
			full = s
		}
	}
	return full
}

// String tells the costs, and what each stage lets pass.
func (c copyCosts) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%g MiB, %.3g s at start and end", c.mib, c.fixedSeconds)
	for i, s := range c.spells {
		if i < len(c.spells)-1 {
			fmt.Fprintf(&b, "; for %.3g s", s.seconds)
		} else if i > 0 {
			b.WriteString("; then")
		}
		for _, s := range s.stages {
			fmt.Fprintf(&b, "; %s: %.3g at once, %.4g ms for a MiB, %.4g MiB/s", s.name, s.atOnce, s.secondsPerMiB*1e3, s.mibPerSecond())
		}
	}
	return b.String()
}

// modelRow holds copies that were measured, in s or MiB/s, against the model.
func (o options) modelRow(name string, measured []float64, unit string, c copyCosts) row {
	f := c.forecast()
	fmt.Fprintf(o.log, "  model of %s: %v\n", name, c)
	predicted := f.seconds
	if unit == "MiB/s" {
		predicted = f.mibPerSecond
	}
	return row{name: name, ours: measured, unit: unit, peer: "the model, " + f.full.name, peers: []float64{predicted}, within: modelWithin}
}

// modelNote is printed above a table that has rows of the model.
func modelNote() string {
	return fmt.Sprintf("The model says what a copy takes by costs that were measured in this run beside it, and names the stage that is full first. Chosen,\n"+
		"and not measured, is one figure: from %g of ib_write_bw's rate on a copy from memory is taken to fill the wire.", wireIsFull)
}

// ethernet and the others are bytes of a packet that are no payload, by their standards.
const (
	ethernetHeader = 14
	// ethernetOther is what tc(8) does not count: preamble, checksum and the gap between frames.
	ethernetOther = 8 + 4 + 12
	// roceHeaders are those of IPv4, UDP, the base transport and its checksum (InfiniBand
	// Architecture, annex A17).
	roceHeaders = 20 + 8 + 12 + 4
	// iwarpHeaders are those of IPv4, TCP with a timestamp, and of a tagged segment with its
	// length and checksum (RFC 5041, RFC 5044). The payload shares the packet with them.
	iwarpHeaders = 20 + 32 + 2 + 14 + 4
)

// payloadShare is the part of a wire's bytes that is payload.
func payloadShare(payload, others int) float64 { return float64(payload) / float64(payload+others) }

// secondsPerMiB is how long a wire takes for a MiB of payload.
func secondsPerMiB(mbit, share float64) float64 { return (1 << 20) * 8 / (mbit * 1e6 * share) }
