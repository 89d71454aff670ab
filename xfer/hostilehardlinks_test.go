package xfer

import (
	"context"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"gdrcp/xfer/internal/flow"
	"gdrcp/xfer/internal/wire"
)

// namesOf returns two names of one file of n bytes, x and y.
func namesOf(n int) []wire.AnnouncedEntry {
	first, second := fileOf(n), fileOf(n)
	first.Names = wire.FileNames{Several: true, First: 0, Left: 1}
	second.Names = wire.FileNames{Several: true, First: 0, Left: 0}
	second.Path = "y"
	return []wire.AnnouncedEntry{first, second}
}

// hostileNames runs talk as a source of hard links that has announced two names of a file, against
// a server that has another file under the first of them.
func hostileNames(t *testing.T, talk func(ctx context.Context, p *puppet) error) (root string, end SessionEnd, err error) {
	t.Helper()
	root, addr, ends := hostileServer(t)
	if err := os.Mkdir(filepath.Join(root, "d"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "d", "x"), []byte("it was there"), 0o600); err != nil {
		t.Fatal(err)
	}
	change := func(h *wire.Hello) { h.Terms.Flags |= wire.FlagHardLinks | wire.FlagMany | wire.FlagMustBeDir }
	err = hostileHello(t, addr, wire.ModePush, "d", change, func(ctx context.Context, s *flow.Session) error {
		p := &puppet{Session: s}
		if err := p.ready(ctx); err != nil {
			return err
		}
		if err := p.announce(ctx, namesOf(5000)...); err != nil {
			return err
		}
		return talk(ctx, p)
	})
	return filepath.Join(root, "d"), <-ends, err
}

// onlyOldX fails the test if the announced names have changed anything.
func onlyOldX(t *testing.T, root string) {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(filepath.Join(root, "x"), &st); err != nil || st.Nlink != 1 || st.Size != 12 {
		t.Errorf("x has %d names and %d bytes, %v", st.Nlink, st.Size, err)
	}
	if _, err := os.Lstat(filepath.Join(root, "y")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("y was made: %v", err)
	}
	if names, _ := filepath.Glob(filepath.Join(root, ".gdrcp-*")); len(names) > 0 {
		t.Errorf("left behind: %v", names)
	}
}

// A further name has no data of its own.
func TestDataForALink(t *testing.T) {
	OnHost(t)
	data := make([]byte, 5000)
	root, end, err := hostileNames(t, func(ctx context.Context, p *puppet) error {
		if err := p.chunk(0, 0, 1, data, whole(1, data)); err != nil {
			return err
		}
		for {
			if err := p.Receive(ctx, func(*wire.Frame) error { return nil }); err != nil {
				return err
			}
		}
	})
	if err == nil || !errors.Is(end.Err, ErrProtocol) {
		t.Errorf("it was not cut off: %v, %v", err, end.Err)
	}
	onlyOldX(t, root)
}

// A source that announces an existing file and then gives it up gets no other name for it.
func TestLinkToWhatWasThere(t *testing.T) {
	OnHost(t)
	var results []wire.Exception
	root, end, err := hostileNames(t, func(ctx context.Context, p *puppet) error {
		if err := p.Ctl.Send(ctx, wire.MsgFail, wire.AppendException(nil, &wire.Exception{Entry: 0, Outcome: Failed, Text: "not today"})); err != nil {
			return err
		}
		if err := p.Ctl.Send(ctx, wire.MsgEnd, binary.AppendUvarint(nil, 2)); err != nil {
			return err
		}
		for upto := uint64(0); upto < 2; {
			err := p.Receive(ctx, func(f *wire.Frame) (err error) {
				if f.Type != wire.MsgResult {
					return nil
				}
				var xs []wire.Exception
				upto, xs, err = wire.DecodeResult(f.Body)
				results = append(results, xs...)
				return err
			})
			if err != nil {
				return err
			}
		}
		return errors.New("enough")
	})
	if len(results) != 2 || results[0].Outcome != Failed || results[1].Outcome != Failed {
		t.Errorf("results %+v, %v, %v", results, err, end.Err)
	}
	onlyOldX(t, root)
}
