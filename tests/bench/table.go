package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// row is one line of the table: gdrcp compared with a competitor, or with a limit.
type row struct {
	name string
	ours []float64
	unit string // unit of ours and peers: "s", "CPU s", "MiB/s" or "ms"
	// peer names the competitor that was measured as peers. If it is empty, goal is a
	// limit in unit, otherwise the minimum ratio of speeds; 0 for none.
	peer  string
	peers []float64
	goal  float64
}

// lessIsBetter distinguishes times from rates.
func (r row) lessIsBetter() bool { return r.unit != "MiB/s" }

// ratio returns gdrcp's speed relative to the competitor's, by medians.
func (r row) ratio() float64 {
	if r.lessIsBetter() {
		return median(r.peers) / median(r.ours)
	}
	return median(r.ours) / median(r.peers)
}

// met reports whether the goal is reached.
func (r row) met() bool {
	if r.peer == "" {
		return median(r.ours) <= r.goal
	}
	return r.ratio() >= r.goal
}

// printTable writes the rows as a table.
func printTable(w io.Writer, rows []row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "comparison\tgdrcp: median (min-max)\tpeer: median (min-max)\truns\tratio\tgoal\t\t")
	for _, r := range rows {
		peer, ratio, goal, verdict := "", "", fmt.Sprintf("<= %g %s", r.goal, r.unit), "met"
		if r.peer != "" {
			peer = r.peer + ": " + spread(r.peers, r.unit)
			ratio, goal = fmt.Sprintf("%.2f", r.ratio()), fmt.Sprintf(">= %.3g", r.goal)
		}
		switch {
		case r.goal == 0:
			goal, verdict = "", ""
		case !r.met():
			verdict = "MISSED"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%s\t%s\t%s\t\n", r.name, spread(r.ours, r.unit), peer, len(r.ours), ratio, goal, verdict)
	}
	return t.Flush()
}

func spread(values []float64, unit string) string {
	return fmt.Sprintf("%.4g %s (%.4g-%.4g)", median(values), unit, slices.Min(values), slices.Max(values))
}

// median returns the median of a list; NaN if it is empty.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
