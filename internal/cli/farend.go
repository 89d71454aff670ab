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

// hangUpTimeout is how long gdrcp waits, after an error, for the pipe to the remote
// process to end. If it ends, that is the reason for the error.
const hangUpTimeout = time.Second

// interruptTimeout is how much later than the end of ssh gdrcp may notice ^C.
const interruptTimeout = 100 * time.Millisecond

// farEnd is a gdrcp process that was started on another host for this copy.
type farEnd struct {
	*remote.Link
	where sshHost
	key   trust.Key
	offer *remote.Offer
	// alive ends when the remote process ends or reports that it cannot continue. Its
	// cause is the reason. It is nil before watch.
	alive context.Context
}

// startFarEnd starts gdrcp on a host. The remote process serves only the holder of a key made for
// it, and only the requested copy. Sources may be patterns. The options give the limits that the
// remote process must obey and the memory that the session may need.
func (c *copyRun) startFarEnd(ctx context.Context, where sshHost, asked remote.Serve, stream bool, o *xfer.Options) (*farEnd, error) {
	var err error
	if asked.Copy.Terms, err = o.CopyTerms(asked.Copy.Push, stream); err != nil {
		return nil, err
	}
	asked.SessionBytes = o.ServedBytes()
	release := c.console.hold() // ssh may ask for a password, in a later attempt as well
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

// connectFarEnd starts gdrcp on a host. If necessary it first copies gdrcp there, and
// reports that with tell.
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
// sources as the user wrote them: ~ means the home directory only in these. A directory
// named ~ may match a pattern. If it were taken for the home directory, the contents of
// that would be copied without a name of their own.
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

// watch returns a context that ends when the remote process ends or reports that it
// cannot continue. Call it once.
func (f *farEnd) watch(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		cancel(f.Talk.Hear(ctx))
	}()
	f.alive = ctx
	return ctx, func() { cancel(nil) }
}

// whyGone returns why the remote process no longer serves, in its own words if it sent
// any. It returns nil while the process serves.
func (f *farEnd) whyGone() error {
	var refused *remote.RefusedError
	if f.alive != nil && errors.As(context.Cause(f.alive), &refused) {
		return fmt.Errorf("%s: %w", f.where.host, refused)
	}
	return f.Failure()
}

// reason returns why the remote process ended, if that is why something failed. An
// error that the remote process reports about the copy counts as its host's.
func (f *farEnd) reason(ctx context.Context, err error) error {
	var said *xfer.RemoteError
	if errors.As(err, &said) {
		said.Peer = f.where.host
	}
	switch {
	case err == nil || ctx.Err() != nil:
		return err
	case said != nil && said.Class != xfer.ClassStopped: // it stops when the pipe ends
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
	select { // its last message may precede the end of the pipe
	case <-f.Mux.Done():
		return interruptedOr(ctx, f.whyGone())
	case <-patience.Done():
	}
	if ctx.Err() == nil && f.alive != nil && f.alive.Err() != nil { // it sends no more messages
		return fmt.Errorf("%s: %w", f.where.host, context.Cause(f.alive))
	}
	return err
}

// isDisconnect reports whether an error looks like the peer has gone.
func isDisconnect(err error) bool {
	for _, kind := range []error{rdma.ErrDisconnected, rdma.ErrClosed, remote.ErrPipe, context.Canceled, xfer.ErrPeerSilent} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return errors.As(err, new(*rdma.OpError)) || errors.As(err, new(*xfer.RemoteError))
}

// interruptedOr returns why ctx ended, or err if it did not end. ^C ends the remote
// shell command too, and gdrcp may notice that first.
func interruptedOr(ctx context.Context, err error) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(interruptTimeout):
		return err
	}
}

// pathsTo returns the paths to a remote process that are worth trying. If none of them is TCP
// outside the pipe, it also returns why. without is why the remote process has no TCP address.
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

// pipeDevice is the device name of a link if a session runs over the pipe.
const pipeDevice = "ssh"

// overSSH copies with remote processes, one for each attempt.
func (c *copyRun) overSSH(ctx context.Context, p *plan, o xfer.Options) (*xfer.Summary, error) {
	var sources []string // of a pull, as the first remote process found them
	return c.untilDone(ctx, o, func(o xfer.Options) (*xfer.Summary, error) { return c.tryOverSSH(ctx, p, o, &sources) })
}

// errOtherNames ends a copy if its patterns match different names than before.
var errOtherNames = errors.New("the pattern of the source stands for other names than when the copy began")

// tryOverSSH copies with one remote process. sources are those of the first attempt, if
// it has found them.
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
		err = &lostFarEnd{err} // an earlier attempt reached the host
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

// isStranger reports whether an error before a connection is established may come from
// another program that uses the remote process's address here. That may be another
// gdrcp, which does not have the key.
func isStranger(err error) bool {
	return errors.As(err, new(*rdma.OpError)) || errors.Is(err, trust.ErrRefused)
}

// copyOver copies over the paths to a remote process. If noTCP says why no other
// address works, it uses the pipe.
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

// noteConnection records that a connection is established. It calls seen with the link
// before the link is reported.
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

// nameLink replaces the placeholder address of the pipe by the host's name.
func (f *farEnd) nameLink(l *xfer.Link, noTCP error) {
	if noTCP == nil || l.Remote != f.Mux.Addr().String() {
		return
	}
	l.Device, l.Local, l.Remote, l.Why = pipeDevice, "here", f.where.host, noTCP.Error()
}
