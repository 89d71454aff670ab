package cli

import (
	"fmt"
	"strings"

	"gdrcp/internal/fileset"
	"gdrcp/xfer"

	"github.com/urfave/cli/v2"
)

// ioFlag is the option that selects how files are read from and written to disk.
func ioFlag(o *xfer.Options) cli.Flag {
	return checkedFlag("io", "`auto|direct|dontcache|buffered` how files are written: past the page cache (direct, O_DIRECT), through it without keeping anything there "+
		"(dontcache, RWF_DONTCACHE, Linux 6.14), or through it (buffered). "+
		"auto takes direct for files from 4 MiB on, on ext4 and XFS. If these refuse it, auto takes dontcache, from Linux 6.16 on. For all else it takes buffered. "+
		"Any other word is forced: it fails (exit code 5) where the destination's file system cannot do it. Small files and the ends of files are always buffered, and buffered keeps what was written in memory, for who reads it next. "+
		"auto reads files from 64 MiB on past the page cache, but for what is in it; direct reads so where the file system can do it (auto)", rung(&o.IO))
}

// transfersFlag is the option for the number of files transferred concurrently.
func transfersFlag(o *xfer.Options) cli.Flag {
	return checkedFlag("transfers", "`N` files of 16MiB and more that are copied side by side: 1 to 16 (4; 1 with --write-manifest). "+
		"1 is best where they are all on one disk that rotates", number(&o.Transfers, 1, xfer.MaxTransfers))
}

// rung is a value of --io.
func rung(to *fileset.IOMode) *checkedValue {
	return &checkedValue{set: func(s string) error {
		r, ok := fileset.ParseIOMode(s)
		if !ok {
			return fmt.Errorf("not one of auto, direct, dontcache, buffered")
		}
		*to = r
		return nil
	}}
}

// diskIOText says how files were read and written. It is empty if that is unknown.
func diskIOText(s *xfer.Summary) string {
	var parts []string
	for _, end := range []struct {
		verb string
		io   xfer.DiskIO
	}{{"read", s.Read}, {"written", s.Written}} {
		if text := rungsText(end.io); text != "" {
			parts = append(parts, end.verb+" by "+text)
		}
	}
	return strings.Join(parts, "; ")
}

func rungsText(b xfer.DiskIO) string {
	var rungs []string
	for _, r := range []struct {
		rung  fileset.IOMode
		bytes int64
	}{{fileset.IODirect, b.Direct}, {fileset.IODontCache, b.DontCache}, {fileset.IOBuffered, b.Buffered}} {
		if r.bytes > 0 {
			rungs = append(rungs, fmt.Sprintf("%v %s", r.rung, bytesText(float64(r.bytes), 1)))
		}
	}
	return strings.Join(rungs, ", ")
}
