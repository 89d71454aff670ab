package xfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"gdrcp/chunker"
	"gdrcp/chunker/dest"
	"gdrcp/internal/filter"
	"gdrcp/internal/numa"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/wire"

	"golang.org/x/sync/errgroup"
)

// Push copies local files to a server. dst is a path below the server's root. If only some entries
// failed, Push returns a summary with the error.
func (c *Client) Push(ctx context.Context, sources []string, ep Endpoint, dst string, o Options) (*Summary, error) {
	c.complete(&o)
	o.hidePartials()
	if err := errors.Join(checkNames(sources), o.checkSinkOptions()); err != nil {
		return nil, err
	}
	if o.BasisManifest != "" {
		return nil, fmt.Errorf("%w: a basis manifest is for a copy to this machine from another", ErrUsage)
	}
	if o.Names != nil {
		var err error
		if sources, err = listedSource(sources); err != nil {
			return nil, err
		}
		if err := chunker.CheckListDir(os.Stat, sources[0]); err != nil {
			return nil, err
		}
	} else if len(sources) == 1 {
		if err := checkSingle(os.Stat, os.Lstat, sources[0], &o); err != nil {
			return nil, err
		}
	}
	o.Slots = o.limits().Slots(o.Slots, o.ChunkBytes)
	h, err := o.hello(wire.ModePush)
	if err != nil {
		return nil, err
	}
	h.Paths, h.Terms.Name = []string{dst}, chunker.BaseName(sources[0])
	if err := o.checkWhole(sources, dst); err != nil {
		return nil, err
	}
	if len(sources) > 1 {
		h.Terms.Flags |= wire.FlagMany | wire.FlagMustBeDir
	}
	if strings.HasSuffix(dst, "/") {
		h.Terms.Flags |= wire.FlagMustBeDir
	}
	// A link named on the command line without -r or -l is followed, as cp does.
	follow := o.Follow || o.Names == nil && followsNamed(o.Recursive, o.Links, o.Follow)
	tree, err := chunker.OpenLocal(namedSources(sources), follow)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	o.Tries.startsAt(tree.RootID, h, &o)
	if o.Unfit != nil && len(sources) > 1 {
		for _, s := range sources {
			if why := o.Unfit(s); why != nil {
				tree.Refuse(s, why)
			}
		}
	}
	return c.copy(ctx, ep, &o, h, func(s *flow.Session, acct *copyResults) conversation {
		src := newSource(s, tree, o.Tally, acct)
		src.filter = newEntryFilter(sources, filter.Absolute)
		src.called = calledOf(sources)
		if o.Names != nil {
			src.names = o.Names.Names()
		}
		return src
	})
}

// Pull copies files from a server to a local path. Its summary and error are like those
// of Push.
func (c *Client) Pull(ctx context.Context, ep Endpoint, paths []string, dst string, o Options) (*Summary, error) {
	c.complete(&o)
	o.hidePartials()
	if err := errors.Join(checkNames(paths), o.checkSinkOptions()); err != nil {
		return nil, err
	}
	if o.Names != nil {
		var err error
		if paths, err = listedSource(paths); err != nil {
			return nil, err
		}
	}
	o.Slots = o.limits().Slots(o.Slots, o.ChunkBytes)
	h, err := o.hello(wire.ModePull)
	if err != nil {
		return nil, err
	}
	h.Paths = paths
	if err := o.checkWhole(paths, dst); err != nil {
		return nil, err
	}
	if len(paths) > 1 {
		h.Terms.Flags |= wire.FlagMany
	}
	store, err := openStore(&h.Terms, dest.Options{Dest: dst, MustBeDir: len(paths) > 1, PartialDir: o.PartialDir, Spare: o.WriteManifest, Unprivileged: !o.Privileged}, o.Tally)
	if err != nil {
		return nil, err
	}
	if h.Terms.Settled != "" && !keepsSettled(&h.Terms, store) {
		o.Tries.forget(h)
	}
	defer store.Close()
	if o.Manifest != "" && store.Special() != nil {
		return nil, fmt.Errorf("%w: --manifest does not work with a %s, which is written before all of it is checked", ErrUsage, store.Special().Kind())
	}
	o.store = store
	o.Tries.startsAt(store.RootID, h, &o)
	known, err := o.openBasis(ctx, h)
	if err != nil {
		return nil, err
	}
	defer known.close()
	return c.copy(ctx, ep, &o, h, func(s *flow.Session, acct *copyResults) conversation {
		k := newSink(s, store, o.Tally, acct)
		k.filter, k.known = newPullFilter(h), known
		k.filter.filter = o.checkable(s.Rules, paths)
		if o.Names != nil {
			k.filter.listed = &listedCheck{names: o.Names.Names(), recursive: o.Recursive}
			k.teller = newNamesTeller(o.Names.Names())
		}
		return k
	})
}

// conversation is the role of one end, with its own talk.
type conversation interface {
	link.Role
	talk(ctx context.Context, g *errgroup.Group) error
	release() error
}

// copy connects, agrees with the server, and runs the conversation.
func (c *Client) copy(ctx context.Context, ep Endpoint, o *Options, h *wire.Hello, begin func(*flow.Session, *copyResults) conversation) (*Summary, error) {
	if err := o.openManifest(ctx, h); err != nil {
		return nil, err
	}
	defer o.closeManifest()
	if p := &h.Terms; o.local.Direct && p.Touched() != nil {
		return nil, fmt.Errorf("gpudirect is required: %w: %w", rdma.ErrUnsupported, p.Touched())
	}
	o.Tries.fit(h)
	o.Tries.learn(c, nil, nil, nil, nil, o)
	d, err := c.connect(ctx, ep, o)
	if err != nil {
		return nil, err
	}
	s := newSession(d, d.link.Remote, true, o.Timeouts)
	s.RingWish.Placement, s.RingWish.GPUs, s.RingWish.Sysfs = o.local, c.GPUs, cmp.Or(c.sysfs, numa.Sysfs)
	h.Rails = c.spread(s, d, o)
	s.Report, s.Memory.Asked = o.report, h.GPU != 0
	s.Limit = o.limits()
	s.Traces(o.trace)
	s.Tally = o.Tally
	s.RingWish.Shrinks = o.Tries.shrinksRing(c, d, o)
	h.WholeRing = !s.RingWish.Shrinks
	var acct *copyResults
	var role conversation
	start := time.Now()
	err = s.Run(ctx, func(ctx context.Context, g *errgroup.Group) error {
		if err := agree(ctx, s, h, d, o); err != nil {
			return err
		}
		o.Tries.stands(s, o.store)
		if acct, err = newCopyResults(&s.Terms, o); err != nil {
			return err
		}
		if err := s.TellRules(ctx, o.Rules); err != nil {
			return err
		}
		if err := joinLanes(ctx, s, d); err != nil {
			return err
		}
		role = begin(s, acct)
		s.Links.Spawn(func(ctx context.Context) error { return keepRails(ctx, s, c, ep, d, o) })
		if o.Stall > 0 {
			g.Go(func() error { return watchProgress(ctx, o.Tally, o.Stall) })
		}
		return role.talk(ctx, g)
	})
	o.Tries.learn(c, d, s, role, err, o)
	d.link.Imm = d.conn.ImmKind()
	if role != nil {
		err = errors.Join(err, role.release())
	}
	err = errors.Join(err, d.close())
	if acct == nil {
		return nil, err
	}
	if err != nil {
		o.Tries.cutOff(acct, role)
	}
	sum := acct.summary(o.Tally, &s.Terms, d.link, start)
	sum.Local, sum.Remote = s.Memories()
	sum.Rails, sum.NUMANodes = s.Links.Uses(), s.Link.RingNodes()
	sum.LocalCost = s.LocalCost()
	if sum.Retries == 0 { // nobody has reported those of the earlier attempts
		sum.RemoteCost = s.Costs.Theirs.Load()
	}
	return sum, errors.Join(err, acct.close())
}

// hello is the request of a client.
func (o *Options) hello(m wire.Mode) (*wire.Hello, error) {
	local, remote, err := o.placements()
	o.local, o.remote = local, remote
	if err != nil {
		return nil, err
	}
	h := &wire.Hello{Terms: wire.Terms{
		Mode: m, ChunkBytes: o.ChunkBytes, PieceBytes: manifest.DefaultPieceBytes, Hash: o.Hash, Slots: o.Slots, QPs: o.QPs, Codec: o.Compress, IO: o.IO, Transfers: o.Transfers,
	}}
	if h.Terms.Hash == 0 {
		h.Terms.Hash = manifest.XXH3
		if local.GPU != wire.GPUOff || remote.GPU != wire.GPUOff {
			h.Terms.Hash = manifest.BLAKE3 // a GPU computes no other digest
		}
	}
	if o.WriteManifest != "" {
		h.Terms.Transfers = 1 // the digests of a file wait in memory while those of another are written
	}
	h.GPU, h.GPUName = uint64(remote.GPU), remote.GPUName
	h.Terms.Flags |= o.sinkFlags()
	h.Terms.MaxDelete, h.Terms.Sizes = o.maxDelete(), o.fileSizes()
	for _, f := range []struct {
		on   bool
		flag uint64
	}{
		{o.CopyGrowing && o.Manifest == "", wire.FlagGrowing}, {len(o.Rules) > 0, wire.FlagRules}, {o.Names != nil, wire.FlagListed},
		{o.OneFileSystem, wire.FlagOneFileSystem}, {o.NoSpaceCheck, wire.FlagNoSpaceCheck},
		{o.resumes(), wire.FlagResume}, {o.resumes() && (o.Recheck || o.Manifest != ""), wire.FlagRecheck}, {o.VerifyWritten, wire.FlagReadBack},
		{o.Recursive, wire.FlagRecursive}, {o.Follow, wire.FlagFollow}, {o.NoFsync, wire.FlagNoFsync},
		{o.Times && !o.IgnoreTimes, wire.FlagSameStays},
		{local.FlushAlways, wire.FlagFlush}, {local.Direct, wire.FlagDirect}, {o.Encrypt, wire.FlagEncrypt}, {o.ForceReplace, wire.FlagForceReplace},
	} {
		if f.on {
			h.Terms.Flags |= f.flag
		}
	}
	h.Terms.Flags |= o.metadataFlags()
	if m == wire.ModePush && !o.NoResume {
		h.Terms.PartialDir = o.PartialDir
	}
	if o.Whole {
		h.Terms.Flags |= wire.FlagItself | wire.FlagWhole
		h.Terms.Stage = o.Tries.stageID()
		h.Replaced = true
	}
	o.Tries.goesOn(&h.Terms)
	return h, nil
}

// agree sends the hello and checks the server's terms.
func agree(ctx context.Context, s *flow.Session, h *wire.Hello, d *firstConn, o *Options) error {
	h.Terms.Slots, h.Terms.QPs = d.grant.Slots, d.grant.QPs
	h.AsksCost, h.Unkept, h.Warnings, s.Costs.Asked = true, true, true, true
	h.Copy = o.Tries.attempt()
	if o.store != nil {
		h.Into = intoOf(s.ID, o.store)
	}
	if err := s.Ctl.Send(ctx, wire.MsgHello, h.Encode()); err != nil {
		return err
	}
	err := s.Expect(ctx, wire.MsgWelcome, "welcome", func(body []byte) error {
		w, err := wire.DecodeHello(body)
		if err != nil {
			return err
		}
		if !h.IsAnsweredBy(&w) {
			return fmt.Errorf("%w: the server's terms are not what was asked for", ErrProtocol)
		}
		if err := o.Tries.answered(h, &w, o); err != nil {
			return err
		}
		s.Terms, s.Into = h.Terms, w.Into
		s.KnowsNear, s.KnowsUnkept, s.KnowsReplaced = w.Rails > 0, w.Unkept, w.Replaced
		if h.Terms.Mode == wire.ModePush && h.Replaced && !w.Replaced {
			return fmt.Errorf("%w: the gdrcp at the destination is older and would replace any directory with --atomic-dir: update it", rdma.ErrUnsupported)
		}
		if h.Terms.Mode == wire.ModePull {
			// Only this end knows the name. The server sends its own only so that both can check
			// that they agree.
			if s.Terms.Name = newPullFilter(h).name; w.Terms.Name != s.Terms.Name {
				return fmt.Errorf("%w: the server serves %q, %q was asked for", ErrProtocol, w.Terms.Name, s.Terms.Name)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	link := &d.link
	link.QPs, link.Slots, link.ChunkBytes, link.Encrypted = s.Terms.QPs, s.Terms.Slots, s.Terms.ChunkBytes, s.Terms.Encrypted()
	link.Imm = s.Link.Lanes[0].Conn.ImmKind()
	said := *link
	o.report(Event{Kind: EventConnected, Link: &said})
	return nil
}

// checkSingle checks that the only source can be copied at all.
func checkSingle(stat, lstat func(string) (os.FileInfo, error), path string, o *Options) error {
	if !followsNamed(o.Recursive, o.Links, o.Follow) {
		stat = lstat
	}
	st, err := stat(path)
	var pe *os.PathError
	if errors.As(err, &pe) {
		return fmt.Errorf("%q: %w", path, pe.Err) // without the name of the system call
	}
	if err != nil {
		return err
	}
	if st.IsDir() && !o.Recursive {
		return fmt.Errorf("%q is a directory (-r copies directories)", path)
	}
	if !st.IsDir() && o.Whole {
		return errNoDir(path)
	}
	if !st.IsDir() && o.WriteManifest != "" && manifest.Replaces(o.WriteManifest, path, followsNamed(o.Recursive, o.Links, o.Follow)) {
		return fmt.Errorf("%w: the manifest %q would replace %q, which is copied", ErrUsage, o.WriteManifest, path)
	}
	return nil
}

// checkNames refuses several sources if one of them would put its contents among the others.
func checkNames(paths []string) error {
	for _, p := range paths {
		if len(paths) > 1 && chunker.BaseName(p) == "." {
			return fmt.Errorf("%w: %q gives no name to copy it under beside other sources: name the directory itself, or copy it alone", ErrUsage, p)
		}
	}
	return nil
}

// namedSources gives every source its name at the destination. A single source is the top of the
// tree itself.
func namedSources(paths []string) []chunker.Source {
	if len(paths) == 1 {
		return []chunker.Source{{Path: paths[0], Name: "."}}
	}
	out := make([]chunker.Source, len(paths))
	for i, p := range paths {
		out[i] = chunker.Source{Path: p, Name: chunker.BaseName(p)}
	}
	return out
}

// calledOf returns the names of the sources at the destination. The name is "." for a source whose
// contents go there.
func calledOf(paths []string) []string {
	names := make([]string, len(paths))
	for i, p := range paths {
		names[i] = chunker.BaseName(p)
	}
	return names
}
