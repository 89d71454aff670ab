package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

const (
	// twoRailsGoal is how many times as fast as one rail two of the same rate are.
	twoRailsGoal = 1.8
	// pauseGoal is for how many seconds a copy may stand when one of its rails dies.
	pauseGoal = 2
	// railRate is the rate of a rail, in the words of tc(8): far below what this machine
	// copies, so that the rails bound the copy.
	railRate = "800mbit"
	// railsPort is where the server listens in a namespace of its own.
	railsPort = "7473"
)

// twoHosts are two network namespaces that two wires join.
type twoHosts struct{ near, far string }

// joinHosts makes two namespaces with two wires of railRate between them. The far one has
// one name, with an address on each wire.
func joinHosts(ctx context.Context) (t twoHosts, err error) {
	id := fmt.Sprint(os.Getpid())
	t = twoHosts{"gdrcp-a" + id, "gdrcp-b" + id}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.remove())
		}
	}()
	hosts := "127.0.0.1 localhost\n"
	commands := [][]string{{"ip", "netns", "add", t.near}, {"ip", "netns", "add", t.far}}
	for i := 1; i <= 2; i++ {
		near, far := fmt.Sprintf("near%d", i), fmt.Sprintf("far%d", i)
		commands = append(commands,
			[]string{"ip", "link", "add", near, "netns", t.near, "type", "veth", "peer", "name", far, "netns", t.far},
			[]string{"ip", "-n", t.near, "addr", "add", fmt.Sprintf("10.77.%d.1/24", i), "dev", near},
			[]string{"ip", "-n", t.far, "addr", "add", fmt.Sprintf("10.77.%d.2/24", i), "dev", far},
			[]string{"ip", "-n", t.near, "link", "set", near, "up"},
			[]string{"ip", "-n", t.far, "link", "set", far, "up"},
			[]string{"tc", "-n", t.near, "qdisc", "add", "dev", near, "root", "tbf", "rate", railRate, "burst", "512kb", "latency", "20ms"},
			[]string{"tc", "-n", t.far, "qdisc", "add", "dev", far, "root", "tbf", "rate", railRate, "burst", "512kb", "latency", "20ms"},
		)
		hosts += fmt.Sprintf("10.77.%d.2 farhost\n", i)
	}
	for _, argv := range commands {
		if _, err := output(ctx, argv...); err != nil {
			return t, err
		}
	}
	// ip-netns(8): what is below this directory takes the place of /etc's.
	if err := os.MkdirAll(t.etc(), 0o755); err != nil {
		return t, err
	}
	return t, os.WriteFile(filepath.Join(t.etc(), "hosts"), []byte(hosts), 0o644)
}

func (t twoHosts) etc() string { return filepath.Join("/etc/netns", t.near) }

// remove takes the namespaces away, and the wires with them.
func (t twoHosts) remove() error {
	var errs []error
	for _, name := range []string{t.near, t.far} {
		_, err := output(context.Background(), "ip", "netns", "del", name)
		errs = append(errs, err)
	}
	return errors.Join(append(errs, os.RemoveAll(t.etc()))...)
}

// compareRails times a copy over two rails beside one over one of them, and for how long
// a copy stands when one of its two rails dies.
func (h *host) compareRails(ctx context.Context) (rows []row, err error) {
	if os.Geteuid() != 0 {
		fmt.Fprintln(h.log, "host: two rails: left out, because only root makes network namespaces")
		return nil, nil
	}
	fmt.Fprintln(h.log, "host: "+h.file()+" over rails of "+railRate+", seconds")
	t, err := joinHosts(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	s, err := startServer(ctx, "on tcp", "ip", "netns", "exec", t.far, h.program, "serve", "--root", h.dst, "--listen", "0.0.0.0:"+railsPort, "--transport", "tcp")
	if err != nil {
		return nil, err
	}
	defer s.stop()
	over := func(rails string) []string {
		argv := h.copyArgs("tcp", []string{"--rails", rails}, h.big, "farhost:"+railsPort, "file-rails"+rails)
		return append([]string{"ip", "netns", "exec", t.near}, argv...)
	}
	one, all := h.copier("one rail", h.big, "file-rails1", over("1")...), h.copier("two rails", h.big, "file-railsall", over("all")...)
	values, err := alternate(ctx, h.log, h.rounds, []*competitor{one, all})
	if err != nil {
		return nil, err
	}
	dies := h.copier("two rails, one dies", h.big, "file-railsall", over("all")...)
	dies.run = func(ctx context.Context) (float64, error) {
		return t.pause(ctx, median(values["one rail"]), over("all"))
	}
	pauses, err := alternate(ctx, h.log, h.rounds, []*competitor{dies})
	name := h.file() + " over two rails of " + railRate
	return []row{
		{name: name, unit: "s", ours: values["two rails"], peer: "one of them", peers: values["one rail"], goal: twoRailsGoal},
		{name: name + ", pause when one dies", unit: "s", ours: pauses["two rails, one dies"], goal: pauseGoal},
	}, err
}

// pause takes one of the wires down a third of the way through a copy. It returns for how
// long the copy stood: what it took beyond the time that the rates of the wires make.
// alone is what the whole takes over one of them.
func (t twoHosts) pause(ctx context.Context, alone float64, argv []string) (float64, error) {
	const at = 0.35 // of the time over one rail, when two have carried 0.7 of the file at most
	wire := func(state string) error {
		_, err := output(context.Background(), "ip", "-n", t.far, "link", "set", "far2", state)
		return err
	}
	down := make(chan error, 1)
	timer := time.AfterFunc(time.Duration(alone*at*float64(time.Second)), func() { down <- wire("down") })
	took, err := seconds(ctx, argv...)
	if timer.Stop() {
		return 0, errors.Join(err, errors.New("the copy ended before a wire was down"))
	}
	if err = errors.Join(err, <-down, wire("up")); err != nil {
		return 0, err
	}
	return max(took-alone*(at+(1-2*at)), 0), nil
}
