package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// localTransport is a link's transport if both ends are on this machine and streams
// within this process connect them.
const localTransport = "local"

// neverSilent is the Silence of ends in one process: neither can die alone, and after
// the process was stopped for an hour (^Z) both still exist.
const neverSilent = 100 * 365 * 24 * time.Hour

// onThisMachine copies from this machine to itself. This process is also the server for
// the user's own files; no other process can be its client.
func (c *copyRun) onThisMachine(ctx context.Context, p *plan, o xfer.Options) (*xfer.Summary, error) {
	if err := p.checkNotSame(p.sources[0]); err != nil && len(p.sources) == 1 {
		return nil, err
	}
	o.Unfit = p.checkNotSame
	if err := p.checkPartialsOutside(&o); err != nil {
		return nil, err
	}
	if err := refuseNetworkOptions(&o); err != nil {
		return nil, err
	}
	if o.QPs == 0 {
		o.QPs = localQueuePairs(runtime.GOMAXPROCS(0))
	}
	key, err := trust.NewKey(localTransport)
	if err != nil {
		return nil, err
	}
	o.Transport, o.Timeouts.Silence = "tcp", neverSilent
	pairs := &tcp.Pairs{}
	carrier := tcp.NewOver(pairs)
	theirs := make(chan xfer.SessionEnd, 1)
	server := xfer.NewServer(xfer.ServerConfig{
		Keys: xfer.OneKey(key, xfer.Admission{}), MaxSessions: 1, MaxMemory: o.ServedBytes(), Timeouts: o.Timeouts, GPUs: c.gpus,
		Spare: o.WriteManifest,
		Log: func(end xfer.SessionEnd) {
			select {
			case theirs <- end:
			default: // the session's own error takes precedence
			}
		},
	})
	if _, err := server.Listen(carrier, pairs.Addr(), rdma.Device{}); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	serving, stop := context.WithCancel(ctx)
	defer stop()
	left := make(chan error, 1)
	go func() { left <- server.Serve(serving) }()
	noteConnection(&o, nameLocalLink)
	there := *p
	there.endpoint = xfer.Endpoint{Host: "this machine", Key: key, Addrs: []xfer.ServerAddr{{Transport: "tcp", Addr: pairs.Addr()}}}
	s, err := c.transfer(ctx, &xfer.Client{TCP: carrier, GPUs: c.gpus}, &there, o)
	if s != nil {
		nameLocalLink(&s.Link)
		s.Rails = nil // no network carried it
		s.OneProcess = true
		if s.RemoteCost != nil {
			s.RemoteCost.CPU, s.RemoteCost.Shared = 0, false // it is the same process's
		}
	}
	stop()
	lost := <-left
	select {
	case end := <-theirs:
		err = causeOf(err, end.Err)
		if s != nil && end.Summary != nil {
			s.Read, s.Written = cmp.Or(s.Read, end.Summary.Read), cmp.Or(s.Written, end.Summary.Written)
		}
	default:
	}
	return s, errors.Join(err, lost)
}

// localQueuePairs returns the number of queue pairs of a copy within this machine. Each
// one uses a processor to move chunks from ring to ring.
func localQueuePairs(processors int) int { return min(max(processors/2, 1), 4) }

// causeOf returns the serving end's error if the other end only received that there was an error.
func causeOf(err, theirs error) error {
	var heard *xfer.RemoteError
	if errors.As(err, &heard) && theirs != nil && !errors.As(theirs, new(*xfer.RemoteError)) {
		return theirs
	}
	return err
}

// nameLocalLink names the link of a copy within this process.
func nameLocalLink(l *xfer.Link) {
	l.Transport, l.Device, l.Family, l.Local, l.Remote = localTransport, "this machine", "", "here", "here"
}

// refuseNetworkOptions refuses options about the network for a copy within this
// machine.
func refuseNetworkOptions(o *xfer.Options) error {
	for _, asked := range []struct{ option, value string }{
		{"--transport", o.Transport}, {"--require", o.Require}, {"--rail", o.Rail}, {"--remote-rail", o.RemoteRail},
	} {
		if asked.value != "" && asked.value != "auto" {
			return fmt.Errorf("%s %s: %w: both ends of the copy are on this machine, so no network carries it", asked.option, args.Quote(asked.value), rdma.ErrUnsupported)
		}
	}
	return nil
}

// checkNotSame refuses to copy a file to itself, under any name, as cp(1) does: with
// -l, a link could replace its own target. The engine makes the same check for
// directories, on those that it has opened.
func (p *plan) checkNotSame(source string) error {
	at, err := os.Stat(p.dst)
	if err != nil || p.dst == streamName || source == streamName {
		return nil // nothing exists there yet, or a later error explains the problem
	}
	from, err := os.Stat(source)
	if err != nil || from.IsDir() {
		return nil
	}
	dst := p.dst
	if at.IsDir() {
		dst = filepath.Join(p.dst, filepath.Base(source))
		if at, err = os.Stat(dst); err != nil {
			return nil
		}
	}
	if os.SameFile(from, at) {
		return fmt.Errorf("%s and %s are the same file", args.Quote(source), args.Quote(dst))
	}
	return nil
}

// checkPartialsOutside refuses a directory for partial files inside a source, because
// the copy would change what it reads. The engine checks the destination. A name
// instead of a path means directories that are excluded at the source. If only part of
// the source is selected, the directory must not be in that part.
func (p *plan) checkPartialsOutside(o *xfer.Options) error {
	dir := o.PartialDir
	if !filepath.IsAbs(dir) || len(o.Rules) > 0 || o.Names != nil || o.OneFileSystem {
		return nil
	}
	stat := os.Lstat // a link is copied as a link
	if o.Follow {
		stat = os.Stat
	}
	at, err := filepath.EvalSymlinks(dir)
	if err != nil { // it will be created in an existing directory
		if at, err = filepath.EvalSymlinks(filepath.Dir(dir)); err != nil {
			return nil // the engine explains the problem
		}
	}
	for _, source := range p.sources {
		top, err := stat(source)
		if err != nil || !top.IsDir() {
			continue
		}
		for above := at; ; above = filepath.Dir(above) {
			if here, err := os.Stat(above); err == nil && os.SameFile(top, here) {
				return fmt.Errorf("--partial-dir %s is in %s, which is copied: name a directory outside, or give a name alone", args.Quote(dir), args.Quote(source))
			}
			if above == "/" {
				break
			}
		}
	}
	return nil
}
