package cli

import (
	"fmt"
	"strings"
	"time"

	"gdrcp/xfer"
)

// costField is what a copy or a bench cost one end. Times are in seconds.
type costField struct {
	// CPUSeconds is omitted if the other end's field has the time of both ends.
	CPUSeconds       float64 `json:"cpu_seconds,omitempty"`
	CPUSecondsPerGiB float64 `json:"cpu_seconds_per_gib,omitempty"`
	CPUShared        bool    `json:"cpu_shared,omitempty"`
	CPUBothEnds      bool    `json:"cpu_both_ends,omitempty"`
	SlotsSeconds     float64 `json:"slots_seconds"`
	WireSeconds      float64 `json:"wire_seconds"`
	DiskSeconds      float64 `json:"disk_seconds"`
	DigestsSeconds   float64 `json:"digests_seconds"`
	SyncSeconds      float64 `json:"sync_seconds"`
}

// costFieldOf returns nil for an end that reported nothing. bytes is the number of bytes moved.
func costFieldOf(c *xfer.Cost, bytes int64) *costField {
	if c == nil {
		return nil
	}
	return &costField{
		CPUSeconds: c.CPU.Seconds(), CPUSecondsPerGiB: perGiB(c, bytes), CPUShared: c.Shared, SlotsSeconds: c.Slots.Seconds(), WireSeconds: c.Wire.Seconds(),
		DiskSeconds: c.Disk.Seconds(), DigestsSeconds: c.Digests.Seconds(), SyncSeconds: c.Sync.Seconds(),
	}
}

// costFields returns the costs of both ends of a copy.
func costFields(s *xfer.Summary) (local, remote *costField) {
	local, remote = costFieldOf(&s.LocalCost, movedBytes(s)), costFieldOf(s.RemoteCost, movedBytes(s))
	local.CPUBothEnds = s.OneProcess
	return local, remote
}

// movedBytes returns the number of bytes that this run of a copy moved or compared.
func movedBytes(s *xfer.Summary) int64 { return s.Bytes - s.ResumedBytes }

// perGiB returns the processor time for each GiB, in seconds. It is 0 if no bytes were moved.
func perGiB(c *xfer.Cost, bytes int64) float64 {
	if bytes <= 0 {
		return 0
	}
	return c.CPU.Seconds() / (float64(bytes) / (1 << 30))
}

// costText returns what a copy cost the two ends, and how they spent their time.
func costText(s *xfer.Summary) string {
	here, there := "here", "there"
	if s.OneProcess {
		here = "for both ends"
	}
	cpu, unit := func(c *xfer.Cost) float64 { return c.CPU.Seconds() }, ""
	if bytes := movedBytes(s); bytes >= perGiBFrom {
		cpu, unit = func(c *xfer.Cost) float64 { return perGiB(c, bytes) }, " a GiB"
	}
	text := fmt.Sprintf("CPU %.2f s%s %s", cpu(&s.LocalCost), unit, here)
	if s.RemoteCost != nil && !s.OneProcess {
		text += fmt.Sprintf(", %.2f s %s", cpu(s.RemoteCost), there)
		if s.RemoteCost.Shared {
			text += " (its share beside other copies)"
		}
	}
	for _, end := range []struct {
		name string
		cost *xfer.Cost
	}{{"here", &s.LocalCost}, {"there", s.RemoteCost}} {
		if waits := waitsText(end.cost); waits != "" {
			text += "; waited " + end.name + " for " + waits
		}
	}
	return text
}

// waitsText returns what an end waited for. It omits anything that took no time.
func waitsText(c *xfer.Cost) string {
	if c == nil {
		return ""
	}
	var waits []string
	for _, w := range []struct {
		what string
		took time.Duration
	}{{"slots", c.Slots}, {"the wire", c.Wire}, {"the disk", c.Disk}, {"digests", c.Digests}, {"syncs", c.Sync}} {
		if w.took >= 5*time.Millisecond {
			waits = append(waits, w.what+" "+secondsText(w.took.Seconds()))
		}
	}
	return strings.Join(waits, ", ")
}

// perGiBFrom is the number of bytes from which processor time is reported for each GiB.
// With fewer bytes, the cost of starting and ending dominates.
const perGiBFrom = 64 << 20

// perGiBText returns the cost for a table. A star marks a share of a cost that several
// copies caused together.
func perGiBText(c *xfer.Cost, bytes int64) string {
	switch {
	case c == nil:
		return "-"
	case c.Shared:
		return fmt.Sprintf("%.3f*", perGiB(c, bytes))
	}
	return fmt.Sprintf("%.3f", perGiB(c, bytes))
}
