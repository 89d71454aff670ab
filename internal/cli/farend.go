package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/internal/trust"
	"gdrcp/rdma"
	"gdrcp/rdma/tcp"
	"gdrcp/xfer"
)

// hangUpTimeout is how long after an error gdrcp waits for the end of the pipe to the
// far end: if the pipe ends as well, that is the reason.
const hangUpTimeout = time.Second

// interruptTimeout is how long after the end of ssh gdrcp may notice ^C.
const interruptTimeout = 100 * time.Millisecond

// farEnd is a gdrcp that was started on another host for this copy.
type farEnd struct {
	*remote.Link
	where sshHost
	key   trust.Key
	offer *remote.Offer
	// alive ends when the far end ends, or says that it cannot go on. Its cause says
	// why. It is nil before watch.
	alive context.Context
}

// startFarEnd starts gdrcp there. The far end serves the holder of a key that is made for
// it, for the requested copy and nothing else. Sources may be patterns. The options say
// which limits the far end must obey, and how much memory the session may need.
func (c *copyRun) startFarEnd(ctx context.Context, where sshHost, asked remote.Serve, stream bool, o *xfer.Options) (*farEnd, error) {
	var err error
	if asked.Copy.Terms, err = o.CopyTerms(asked.Copy.Push, stream); err != nil {
		return nil, err
	}
	asked.SessionBytes = o.ServedBytes()
	release := c.console.hold() // ssh may ask for a password, in a later try as well
	link, err := c.connectFarEnd(ctx, &c.ssh, where, c.tellBootstrap)
	release()
	if err != nil {
		return nil, err
	}
	f := &farEnd{Link: link, where: where}
	if f.key, err = trust.NewKey("ssh"); err == nil {
		asked.Key = f.key
		f.offer, err = link.Talk.AskServe(ctx, &asked)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", where.host, f.reason(ctx, err)), link.Close())
	}
	return f, nil
}

// tellBootstrap reports that gdrcp is being copied to a host.
func (c *copyRun) tellBootstrap(what string) {
	if !c.quiet && !c.json {
		c.console.line("gdrcp: %s", what)
	}
}

// connectFarEnd starts gdrcp there. If it has to, it copies gdrcp there first, and
// reports that.
func (p *program) connectFarEnd(ctx context.Context, s *sshOptions, where sshHost, tell func(what string)) (*remote.Link, error) {
	o, err := p.origin(s, where)
	if err != nil {
		return nil, err
	}
	var link *remote.Link
	if s.bootstrap {
		link, err = o.Bootstrap(ctx, binaries(), tell)
	} else {
		link, err = o.Connect(ctx)
		if errors.Is(err, remote.ErrMissing) || errors.Is(err, remote.ErrVersion) {
			err = fmt.Errorf("%w: --bootstrap copies this gdrcp there, to the user's cache directory", err)
		}
	}
	if err != nil {
		return nil, interruptedOr(ctx, err)
	}
	return link, nil
}

// offeredPaths returns the paths that the host of an offer is to read. asked are the
// sources as the user wrote them: ~ stands for the home directory only there. A
// directory of that name may match a pattern, and the contents of a home directory would
// come without a name of their own.
func offeredPaths(asked []string, o *remote.Offer) []string {
	return slices.Concat(offeredFor(asked, o)...)
}

// offeredFor returns these paths for each of the sources.
func offeredFor(asked []string, o *remote.Offer) [][]string {
	paths := make([][]string, len(o.Expanded))
	for i, names := range o.Expanded {
		fromHome := remote.AtHome(asked[i], o.Home) != asked[i]
		for _, name := range names {
			if fromHome {
				name = remote.AtHome(name, o.Home)
			}
			paths[i] = append(paths[i], name)
		}
	}
	return paths
}

// watch ends a context when the far end goes away, or says that it cannot go on. Call
// it once.
func (f *farEnd) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		cancel(f.Talk.Hear(ctx))
	}()
	f.alive = ctx
	return ctx, func() { cancel(nil) }
}

// whyGone returns why the far end no longer serves, in the far end's words if it gave
// any; nil while it serves.
func (f *farEnd) whyGone() error {
	var refused *remote.RefusedError
	if f.alive != nil && errors.As(context.Cause(f.alive), &refused) {
		return fmt.Errorf("%s: %w", f.where.host, refused)
	}
	return f.Failure()
}

// reason returns why the far end ended, if that is why something failed. The far end's
// own objection to a copy counts as its host's.
func (f *farEnd) reason(ctx context.Context, err error) error {
	var said *xfer.RemoteError
	if errors.As(err, &said) {
		said.Peer = f.where.host
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case said != nil && said.Class != xfer.ClassStopped: // it stops itself when the pipe ends
		return err
	case f.alive != nil && errors.As(err, new(*remote.RefusedError)):
		return f.whyGone()
	case !isDisconnect(err):
		return err
	}
	patience, cancel := context.WithTimeout(ctx, hangUpTimeout)
	defer cancel()
	var heard <-chan struct{}
	if f.alive != nil {
		heard = f.alive.Done()
	}
	select {
	case <-heard:
	case <-f.Mux.Done():
	case <-patience.Done():
	}
	if why := f.whyGone(); why != nil {
		return interruptedOr(ctx, why)
	}
	select { // its last message may come before the end of the pipe
	case <-f.Mux.Done():
		return interruptedOr(ctx, f.whyGone())
	case <-patience.Done():
	}
	if ctx.Err() == nil && f.alive != nil && f.alive.Err() != nil { // it sends no more messages
		return fmt.Errorf("%s: %w", f.where.host, context.Cause(f.alive))
	}
	return err
}

// isDisconnect reports whether an error looks like the end of the peer.
func isDisconnect(err error) bool {
	for _, kind := range []error{rdma.ErrDisconnected, rdma.ErrClosed, remote.ErrPipe, context.Canceled, xfer.ErrPeerSilent} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return errors.As(err, new(*rdma.OpError)) || errors.As(err, new(*xfer.RemoteError))
}

// interruptedOr returns why ctx ended, or err if it does not end: ^C ends the remote
// shell command too, which gdrcp may notice first.
func interruptedOr(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(interruptTimeout):
		return err
	}
}

// pathsTo returns the ways to a far end that are worth trying, and why none goes by TCP
// outside the pipe. without is why the far end has no TCP address.
func (p *program) pathsTo(ctx context.Context, host string, addrs []remote.Address, without string, o *xfer.Options) (paths []xfer.ServerAddr, noTCP error) {
	var byTCP []remote.Address
	for _, a := range addrs {
		if a.Transport == "tcp" {
			byTCP = append(byTCP, a)
		} else {
			paths = append(paths, xfer.ServerAddr(a))
		}
	}
	if o.Transport == "verbs" {
		return paths, nil
	}
	reached, problem := remote.Reach(ctx, byTCP)
	rates := p.localRates()
	for _, w := range reached {
		path := xfer.ServerAddr(w.Address)
		path.RateGbps = slower(path.RateGbps, rates[w.Local])
		paths = append(paths, path)
	}
	switch {
	case len(reached) > 0:
		return paths, nil
	case problem == nil && without != "":
		return paths, fmt.Errorf("%s has no other address: %s", host, without)
	case problem == nil:
		return paths, fmt.Errorf("%s has no other address", host)
	}
	return paths, fmt.Errorf("no other address of %s reached: %s", host, lineOf(problem))
}

// pipeDevice is the name of a link's device when a session runs over the pipe.
const pipeDevice = "ssh"

// overSSH copies with far ends that are started for that, one for each try.
func (c *copyRun) overSSH(ctx context.Context, p *plan, o xfer.Options) (*xfer.Summary, error) {
	var sources []string // of a pull, as the first far end has found them
	return c.untilDone(ctx, o, func(o xfer.Options) (*xfer.Summary, error) { return c.tryOverSSH(ctx, p, o, &sources) })
}

// errOtherNames ends a copy whose patterns have come to stand for other names.
var errOtherNames = errors.New("the pattern of the source stands for other names than when the copy began")

// tryOverSSH copies with one far end. sources are those of the first try, once there was
// one.
func (c *copyRun) tryOverSSH(ctx context.Context, p *plan, o xfer.Options, sources *[]string) (*xfer.Summary, error) {
	isStream, err := p.isStream()
	if err != nil {
		return nil, err
	}
	asked := remote.Serve{Sources: p.sources}
	if p.push {
		asked = remote.Serve{Copy: remote.Copy{Push: true, Dest: p.dst}}
	}
	f, err := c.startFarEnd(ctx, *p.far, asked, isStream, &o)
	if err != nil && o.Tries.HaveStood() && !isLasting(err) {
		err = &lostFarEnd{err} // the host was there before
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	within, stop := f.watch(ctx)
	defer stop()
	if err := xfer.CheckExpansion(asked.Sources, offeredFor(asked.Sources, f.offer)); err != nil {
		return nil, fmt.Errorf("%s: %w", f.where.host, err)
	}
	now := offeredPaths(asked.Sources, f.offer)
	if *sources != nil && !slices.Equal(now, *sources) {
		return nil, fmt.Errorf("%s: %w", f.where.host, errOtherNames)
	}
	*sources = now
	paths, noTCP := c.pathsTo(within, f.where.host, dialable(f.offer.Addresses, f.key, f.offer.Machine), f.offer.NoTCP, &o)
	if o.Transport == "verbs" && len(paths) == 0 {
		return nil, fmt.Errorf("%w: %s offers no RDMA address: %s", rdma.ErrUnsupported, f.where.host, f.offer.NoRails)
	}
	s, connected, err := c.copyOver(within, f, p, o, paths, noTCP)
	if err != nil && !connected && noTCP == nil && o.Transport != "verbs" && within.Err() == nil && isStranger(err) {
		noTCP = fmt.Errorf("no other address of %s reached: %s", f.where.host, lineOf(err))
		s, _, err = c.copyOver(within, f, p, o, nil, noTCP)
	}
	if err == nil {
		f.Leave()
	}
	reason := f.reason(ctx, err)
	if reason != err && !isLasting(reason) {
		reason = &lostFarEnd{reason}
	}
	return s, reason
}

// isStranger reports whether an error before a connection stands may come of another program
// that has a far end's address here, be it another gdrcp: that has not the far end's key.
func isStranger(err error) bool {
	return errors.As(err, new(*rdma.OpError)) || errors.Is(err, trust.ErrRefused)
}

// copyOver copies by the ways to a far end. If noTCP says why no other address will do,
// it uses the pipe.
func (c *copyRun) copyOver(ctx context.Context, f *farEnd, p *plan, o xfer.Options, paths []xfer.ServerAddr, noTCP error) (s *xfer.Summary, connected bool, err error) {
	client := c.client()
	if noTCP != nil {
		client.TCP = tcp.NewOver(f.Mux)
		paths = append(paths, xfer.ServerAddr{Transport: "tcp", Addr: f.Mux.Addr(), Device: pipeDevice})
	}
	stands := noteConnection(&o, func(l *xfer.Link) { f.nameLink(l, noTCP) })
	there := *p
	there.endpoint = xfer.Endpoint{Host: f.where.host, Key: f.key, Addrs: paths}
	if p.push {
		there.dst = remote.AtHome(p.dst, f.offer.Home)
	} else {
		there.sources = offeredPaths(p.sources, f.offer)
	}
	s, err = c.transfer(ctx, client, &there, o)
	if s != nil {
		f.nameLink(&s.Link, noTCP)
	}
	return s, stands.Load(), err
}

// noteConnection notes that a connection stands, and calls seen with its link before
// the link is reported.
func noteConnection(o *xfer.Options, seen func(*xfer.Link)) (stands *atomic.Bool) {
	stands = new(atomic.Bool)
	report := o.Report
	o.Report = func(e xfer.Event) {
		if e.Kind == xfer.EventConnected {
			stands.Store(true)
			seen(e.Link)
		}
		report(e)
	}
	return stands
}

// nameLink replaces the address that stands for the pipe by the host's name.
func (f *farEnd) nameLink(l *xfer.Link, noTCP error) {
	if noTCP == nil || l.Remote != f.Mux.Addr().String() {
		return
	}
	l.Device, l.Local, l.Remote, l.Why = pipeDevice, "here", f.where.host, noTCP.Error()
}
