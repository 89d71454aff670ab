package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"gdrcp/rdma"
	"gdrcp/xfer"
)

// railsEvery is how often a server polls the RDMA devices. Devices, their ports and
// their addresses come and go in several ways, and the kernel does not report all of
// them. A poll takes a few milliseconds.
const railsEvery = 3 * time.Second

// railAt is an address of a device.
type railAt struct {
	device string
	addr   netip.Addr
}

// railFollower keeps a server listening on the present RDMA devices: it adds devices
// that appear and drops those that disappear. It must not be used concurrently.
type railFollower struct {
	s      *serveRun
	server *xfer.Server
	port   uint16
	// ports are the ports that the kernel chose if port is 0. A device that comes back
	// gets the same port, so that clients that know the port find it again.
	ports map[railAt]uint16
	// failed has the errors of listening that were already reported, by address.
	failed map[railAt]string
}

func (s *serveRun) followRails(server *xfer.Server, port uint16) *railFollower {
	return &railFollower{s: s, server: server, port: port, ports: make(map[railAt]uint16), failed: make(map[railAt]string)}
}

// follow calls look every railsEvery until ctx ends.
func (f *railFollower) follow(ctx context.Context) {
	tick := time.NewTicker(railsEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if problem := f.look(); problem != nil {
				f.s.console.line("gdrcp: %s", lineOf(problem))
			}
		case <-ctx.Done():
			return
		}
	}
}

// look stops listening on devices that disappeared and starts on devices that appeared.
// It returns the errors of listening that were not reported before.
func (f *railFollower) look() (problem error) {
	devices, usable, why := f.s.rails()
	heard := f.drop(devices, usable)
	wanted := make(map[railAt]bool)
	first := error(nil)
	for _, d := range usable {
		for _, addr := range railAddrs(d) {
			at := railAt{d.Name, addr}
			if wanted[at] = true; heard[at] {
				continue
			}
			err := f.listen(d, at)
			if errors.Is(err, rdma.ErrClosed) {
				return nil // the server has ended
			}
			if err != nil && first == nil {
				first = fmt.Errorf("the server cannot listen on %s: %w", d.Name, err)
			}
			if err != nil && f.failed[at] != err.Error() {
				f.failed[at] = err.Error()
				problem = errors.Join(problem, err)
			}
		}
	}
	for at := range f.failed {
		if !wanted[at] {
			delete(f.failed, at)
		}
	}
	if why == "" && first != nil {
		why = first.Error()
	}
	if why != "" {
		f.server.TellNoRails(why)
	}
	return problem
}

// listen starts listening at an address of a device, and reports that.
func (f *railFollower) listen(d rdma.Device, at railAt) error {
	heard, err := f.server.Listen(f.s.verbs, netip.AddrPortFrom(at.addr, cmp.Or(f.port, f.ports[at])), d)
	if err != nil {
		return err
	}
	delete(f.failed, at)
	f.ports[at] = heard.Port()
	if !f.s.oneCPU {
		f.s.limitCPUs("verbs")
	}
	f.s.tellListening("verbs "+d.Name, heard)
	return nil
}

// drop stops listening at addresses that clients can no longer reach and reports that.
// It returns the addresses at which the server still listens.
func (f *railFollower) drop(devices, usable []rdma.Device) (heard map[railAt]bool) {
	heard = make(map[railAt]bool)
	for _, l := range f.server.Listening() {
		at := railAt{l.Device, l.Addr.Addr()}
		there := slices.ContainsFunc(usable, func(d rdma.Device) bool { return d.Name == at.device && slices.Contains(railAddrs(d), at.addr) })
		switch {
		case l.Device == "": // TCP
		case there && l.Err == nil:
			heard[at] = true
		default:
			err := f.server.Drop(l.Device, l.Addr)
			f.s.console.line("gdrcp: no longer serving on verbs %s %s: %s", l.Device, l.Addr, lineOf(errors.Join(whyGone(devices, at, l.Err), err)))
		}
	}
	return heard
}

// whyGone returns why the server no longer listens at an address.
func whyGone(devices []rdma.Device, at railAt, failed error) error {
	i := slices.IndexFunc(devices, func(d rdma.Device) bool { return d.Name == at.device })
	switch {
	case i < 0:
		return errors.New("the device is gone")
	case !devices[i].Usable():
		return errors.New(devices[i].Problem)
	case !slices.Contains(railAddrs(devices[i]), at.addr):
		return errors.New("the device no longer has this address")
	case failed != nil:
		return failed
	}
	return errors.New("the device was removed and made anew")
}
