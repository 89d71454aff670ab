package cli

import (
	"errors"
	"net/netip"
	"regexp"
	"runtime"
	"slices"
	"testing"

	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// changingDevices is a verbs provider that uses TCP and whose devices change.
type changingDevices struct {
	softDevice
	devices []rdma.Device
	err     error
	deaf    error // why listening fails
}

func (c *changingDevices) Devices() ([]rdma.Device, error) { return slices.Clone(c.devices), c.err }

func (c *changingDevices) Listen(at netip.AddrPort, w rdma.Wire) (rdma.Listener, error) {
	if c.deaf != nil {
		return nil, c.deaf
	}
	return c.softDevice.Listen(at, w)
}

func deviceAt(name string, addrs ...string) rdma.Device {
	port := rdma.Port{Number: 1}
	for _, a := range addrs {
		port.Addrs = append(port.Addrs, netip.MustParseAddr(a))
	}
	return rdma.Device{Name: name, Ports: []rdma.Port{port}}
}

// A server listens on the present devices, whatever happens to them, and reports each
// change once.
func TestRailsAreFollowed(t *testing.T) {
	cpus := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { runtime.GOMAXPROCS(cpus) })
	p, _, _ := newProgram()
	devices := &changingDevices{softDevice: softDevice{tcp.New()}}
	p.verbs = devices
	s := &serveRun{program: p, transport: "auto", admissions: oneRoot(t, "/srv")}
	server := xfer.NewServer(xfer.ServerConfig{Followed: true})
	defer server.Close()
	rails := s.followRails(server, 0)
	down := deviceAt("rail0", "127.0.0.1")
	down.Problem = "no port is active"
	var at []netip.AddrPort
	for _, step := range []struct {
		name    string
		change  func()
		wrote   string // without the port
		listens int
	}{
		{"none", func() { devices.err = rdma.ErrNoDevice }, ``, 0},
		{"two come", func() {
			devices.err, devices.devices = nil, []rdma.Device{deviceAt("rail0", "127.0.0.1"), deviceAt("rail1", "127.0.0.2")}
		}, `gdrcp: serving /srv on verbs rail0 127\.0\.0\.1:\d+\ngdrcp: serving /srv on verbs rail1 127\.0\.0\.2:\d+\n`, 2},
		{"one goes", func() { devices.devices = devices.devices[:1] }, `gdrcp: no longer serving on verbs rail1 127\.0\.0\.2:\d+: the device is gone\n`, 1},
		{"the port goes down", func() { devices.devices = []rdma.Device{down} }, `gdrcp: no longer serving on verbs rail0 127\.0\.0\.1:\d+: no port is active\n`, 0},
		{"it is deaf", func() {
			devices.devices, devices.deaf = []rdma.Device{deviceAt("rail0", "127.0.0.1")}, errors.New("it is deaf")
		}, `gdrcp: it is deaf\n`, 0},
		{"and hears again", func() { devices.deaf = nil }, `gdrcp: serving /srv on verbs rail0 127\.0\.0\.1:\d+\n`, 1},
		{"another address", func() { devices.devices = []rdma.Device{deviceAt("rail0", "127.0.0.3")} },
			`gdrcp: no longer serving on verbs rail0 127\.0\.0\.1:\d+: the device no longer has this address\ngdrcp: serving /srv on verbs rail0 127\.0\.0\.3:\d+\n`, 1},
		{"all go", func() { devices.err = rdma.ErrNoDevice }, `gdrcp: no longer serving on verbs rail0 127\.0\.0\.3:\d+: the device is gone\n`, 0},
	} {
		step.change()
		for try := range 2 { // the second time there is nothing new
			errs := &buffer{}
			s.console = &console{w: errs}
			if problem := rails.look(); problem != nil {
				s.console.line("gdrcp: %s", lineOf(problem))
			}
			want := "^" + step.wrote + "$"
			if try > 0 {
				want = "^$"
			}
			if !regexp.MustCompile(want).MatchString(errs.String()) {
				t.Errorf("%s: it wrote %q, want %s", step.name, errs, want)
			}
			list := server.Listening()
			if len(list) != step.listens {
				t.Errorf("%s: it listens at %v, want %d", step.name, list, step.listens)
			}
			if step.name == "two come" || step.name == "and hears again" {
				at = append(at, list[0].Addr)
			}
		}
	}
	if slices.ContainsFunc(at, func(a netip.AddrPort) bool { return a != at[0] }) {
		t.Errorf("a device that is back is at %v, want one address", at)
	}
}
