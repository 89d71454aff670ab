package cli

import (
	"context"
	"fmt"

	"gdrcp/internal/cli/args"
	"gdrcp/xfer"
)

type diskEvent struct {
	Event         string  `json:"event"`
	Dir           string  `json:"dir"`
	Bytes         int64   `json:"bytes"`
	WriteMiBPerS  float64 `json:"write_mib_per_s"`
	ReadMiBPerS   float64 `json:"read_mib_per_s"`
	WriteSeconds  float64 `json:"write_seconds"`
	SyncSeconds   float64 `json:"sync_seconds"`
	ReadSeconds   float64 `json:"read_seconds"`
	ReadFromCache bool    `json:"read_from_cache"`
}

// slowerEvent reports whether disk or wire is the slower, for each direction.
type slowerEvent struct {
	Event       string  `json:"event"`
	WireMiBPerS float64 `json:"wire_mib_per_s"`
	Destination string  `json:"as_destination"`
	Source      string  `json:"as_source"`
}

// disks measures the directory of --disk. It returns nil if --disk was not given.
func (b *benchRun) disks(ctx context.Context) (*xfer.DiskRates, error) {
	if b.disk == "" {
		return nil, nil
	}
	d, err := xfer.BenchDisk(ctx, b.disk, b.bytes)
	if err != nil {
		err = fmt.Errorf("measure %s: %w", args.Quote(b.disk), err)
		if isNoSpace(err) {
			err = &hintedError{err, "measure with less: --bytes SIZE"}
		}
		return nil, err
	}
	if b.json {
		b.events.emit(diskEvent{
			"disk", b.disk, d.Bytes, d.WriteMiBPerSecond(), d.ReadMiBPerSecond(), d.WriteSeconds, d.SyncSeconds, d.ReadSeconds, d.FromMemory,
		})
		return d, nil
	}
	note := ""
	if d.FromMemory {
		note = ", from the kernel's memory, which did not let go of it"
	}
	_, err = fmt.Fprintf(b.stdout, "DISK %s takes %.1f MiB/s (%s in %.3f s, of that %.3f s sync) and gives %.1f MiB/s (%.3f s%s)\n\n",
		args.Quote(b.disk), d.WriteMiBPerSecond(), shortBytes(float64(d.Bytes)), d.WriteSeconds, d.SyncSeconds, d.ReadMiBPerSecond(), d.ReadSeconds, note)
	return d, err
}

// tellSlower prints whether disk or wire limits a copy. A copy computes digests, so use
// the slowest bandwidth that was measured.
func (b *benchRun) tellSlower(d *xfer.DiskRates, all []*xfer.Bandwidth) {
	if d == nil || len(all) == 0 {
		return
	}
	wire := all[0].MiBPerSecond()
	for _, r := range all {
		wire = min(wire, r.MiBPerSecond())
	}
	slower := func(disk float64) string {
		if disk < wire {
			return "disk"
		}
		return "wire"
	}
	e := slowerEvent{"slower", wire, slower(d.WriteMiBPerSecond()), slower(d.ReadMiBPerSecond())}
	if b.json {
		b.events.emit(e)
		return
	}
	fmt.Fprintf(b.stdout, "\nSLOWER with %s as the destination: the %s (disk %.1f, wire %.1f MiB/s); as the source: the %s (disk %.1f MiB/s)\n",
		args.Quote(b.disk), e.Destination, d.WriteMiBPerSecond(), wire, e.Source, d.ReadMiBPerSecond())
}
