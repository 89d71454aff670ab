package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// wireMbit is the rate of a wire between two guests: far below what an emulated processor
// moves over it, so that the wires bound the copy. wireRate says it in the words of tc(8).
const (
	wireMbit = 20
	wireRate = "20mbit"
)

// wireSlots are few: a whole ring goes over the first rail before the second has joined,
// and over so slow a wire that takes long.
const wireSlots = "4"

// wiredDevices are two rails of a kind, each with a wire of its own (tests/bed/bed), and
// where the other guest is on the first.
type wiredDevices struct {
	kind, first, wires, address string
	share                       float64 // of payload in what a wire carries
}

// wireMTU is how long a packet on a wire may be (tests/bed/bed).
const wireMTU = 4200

var wired = []wiredDevices{
	{"rxe (RoCEv2)", "rxe0", "eth0 eth2", "10.7.0.2", payloadShare(4096, ethernetHeader+roceHeaders)},
	{"siw (iWARP)", "siw0", "eth1 eth3", "10.8.0.2", payloadShare(wireMTU-iwarpHeaders, ethernetHeader+iwarpHeaders)},
}

// wireFiles are the files that go from guest to guest. Both guests make the same.
type wireFiles struct{ wires, far, kibibyte string }

// sourceOf is which of the files a copy of that name is of.
func (f wireFiles) sourceOf(name string) string {
	switch {
	case strings.HasPrefix(name, farPrefix):
		return f.far
	case strings.HasPrefix(name, startPrefix):
		return f.kibibyte
	}
	return f.wires
}

// guests is what two guests of the bed tell each other: files in a folder that both have.
type guests struct{ folder string }

const (
	keyIsThere = "key"       // the key that both use
	serves     = "serving"   // what the sink writes when a source can begin
	copiesMade = "copied"    // the names of the copies, a line each
	judged     = "judged"    // what the sink finds wrong with them
	guestWait  = time.Minute // how long one may take for what it does at once
)

// say writes a file that appears whole.
func (g guests) say(name, text string) error {
	path := filepath.Join(g.folder, name)
	return errors.Join(os.WriteFile(path+".new", []byte(text), 0o600), os.Rename(path+".new", path))
}

// hear waits for such a file.
func (g guests) hear(ctx context.Context, name string) (string, error) {
	for {
		if text, err := os.ReadFile(filepath.Join(g.folder, name)); err == nil {
			return string(text), nil
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return "", fmt.Errorf("wait for the other guest's file %q: %w", name, ctx.Err())
		}
	}
}

// hearSoon is hear for what the other guest does at once.
func (g guests) hearSoon(ctx context.Context, name string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, guestWait)
	defer cancel()
	return g.hear(ctx, name)
}

// benchWires compares copies over two devices with copies over one of them, and copies to a
// server far away, between two guests: the one called a is the source, the other the sink.
func benchWires(ctx context.Context, o options, node, shared string) error {
	g := guests{shared}
	folder, err := os.MkdirTemp(o.folder, "gdrcp-bench.")
	if err != nil {
		return fmt.Errorf("make folder: %w", err)
	}
	defer os.RemoveAll(folder)
	files := wireFiles{filepath.Join(folder, "source"), filepath.Join(folder, "far"), filepath.Join(folder, "kibibyte")}
	if err := errors.Join(writeRandom(files.wires, int64(o.wiresMiB)<<20), writeRandom(files.far, int64(o.farMiB)<<20), writeRandom(files.kibibyte, 1<<10)); err != nil {
		return err
	}
	if node != "a" {
		return o.beSink(ctx, g, folder, files)
	}
	rows, err := o.beSource(ctx, g, files)
	if err != nil {
		return err
	}
	fmt.Printf("\nBed: two guests with emulated CPUs, files in /dev/shm. Two wires of %s between them, and then one that takes %s.\n%s\n", wireRate, farDelay, modelNote())
	return o.print(rows)
}

// beSource compares, and has the sink look at what arrived. In every case it tells the
// sink when there is no more to come.
func (o options) beSource(ctx context.Context, g guests, files wireFiles) (rows []row, err error) {
	var names []string
	defer func() {
		if err != nil {
			err = errors.Join(err, g.say(copiesMade, ""))
		}
	}()
	if err := o.shareKey(g); err != nil {
		return nil, err
	}
	if _, err := g.hearSoon(ctx, serves); err != nil {
		return nil, err
	}
	for _, d := range wired {
		more, copies, err := o.compareWires(ctx, d, files)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", d.kind, err)
		}
		rows, names = append(rows, more...), append(names, copies...)
	}
	more, copies, err := o.compareFar(ctx, files)
	if err != nil {
		return nil, err
	}
	rows, names = append(rows, more...), append(names, copies...)
	if err := g.say(copiesMade, strings.Join(names, "\n")); err != nil {
		return nil, err
	}
	wrong, err := g.hearSoon(ctx, judged)
	if wrong != "" {
		err = errors.New(wrong)
	}
	return rows, err
}

// shareKey gives the sink the key.
func (o options) shareKey(g guests) error {
	key, err := os.ReadFile(os.Getenv("GDRCP_KEY_FILE"))
	return errors.Join(err, g.say(keyIsThere, string(key)))
}

// beSink serves until the source has copied, and tells what it finds wrong with what
// arrived.
func (o options) beSink(ctx context.Context, g guests, folder string, files wireFiles) error {
	key, err := g.hearSoon(ctx, keyIsThere)
	if err == nil {
		err = os.WriteFile(os.Getenv("GDRCP_KEY_FILE"), []byte(key), 0o600)
	}
	dst := filepath.Join(folder, "dst")
	if err := errors.Join(err, os.Mkdir(dst, 0o755)); err != nil {
		return err
	}
	s, err := o.serve(ctx, dst, "0.0.0.0:7473", "verbs siw1")
	if err != nil {
		return err
	}
	defer s.stop()
	if err := g.say(serves, ""); err != nil {
		return err
	}
	names, err := g.hear(ctx, copiesMade)
	if err != nil {
		return err
	}
	var errs []error
	for name := range strings.FieldsSeq(names) {
		errs = append(errs, compare(ctx, files.sourceOf(name), filepath.Join(dst, name), true))
	}
	wrong := ""
	if err := errors.Join(errs...); err != nil {
		wrong = err.Error()
	}
	return g.say(judged, wrong)
}

// compareWires times copies over one and over two wires, and returns the names of all.
func (o options) compareWires(ctx context.Context, d wiredDevices, files wireFiles) (rows []row, names []string, err error) {
	fmt.Fprintf(o.log, "bed: two wires of %s, %s, seconds\n", wireRate, d.kind)
	for wire := range strings.FieldsSeq(d.wires) {
		if _, err := output(ctx, "tc", "qdisc", "replace", "dev", wire, "root", "tbf", "rate", wireRate, "burst", "128kb", "limit", "1mb"); err != nil {
			return nil, nil, err
		}
	}
	over := func(name, source, prefix string, extra ...string) *competitor {
		return &competitor{name: name, cold: true, run: func(ctx context.Context) (float64, error) {
			copied := fmt.Sprintf("%s%s-%d", prefix, d.first, len(names))
			names = append(names, copied)
			return seconds(ctx, o.copyArgs("verbs", append(extra, "--require", "verbs", "--slots", wireSlots), source, d.address, copied)...)
		}}
	}
	const one, two, oneStart, twoStart = "one rail", "two rails", "one rail, 1 KiB", "two rails, 1 KiB"
	values, err := alternate(ctx, o.log, o.rounds, []*competitor{
		over(one, files.wires, "", "--rails", "1", "--rail", d.first), over(oneStart, files.kibibyte, startPrefix, "--rails", "1", "--rail", d.first),
		over(two, files.wires, "", "--rails", "2"), over(twoStart, files.kibibyte, startPrefix, "--rails", "2"),
	})
	if err != nil {
		return nil, names, err
	}
	name := func(wires string) string {
		return fmt.Sprintf("%s: %d MiB over %s of %s", d.kind, o.wiresMiB, wires, wireRate)
	}
	model := func(rails int, start string) copyCosts {
		return steady(float64(o.wiresMiB), median(values[start]), stage{"wire", float64(rails), secondsPerMiB(wireMbit, d.share)})
	}
	return []row{
		{name: name("two wires"), unit: "s", ours: values[two], peer: "one of them", peers: values[one], goal: twoRailsGoal},
		o.modelRow(name("one wire"), values[one], "s", model(1, oneStart)),
		o.modelRow(name("two wires"), values[two], "s", model(2, twoStart)),
	}, names, nil
}
