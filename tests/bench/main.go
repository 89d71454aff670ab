// Command bench compares gdrcp with similar tools, in one run on one machine, and prints
// the ratios. It is started by the script run in the same directory, which installs those
// tools:
//
//	bench pair -gdrcp FILE -before FILE -tree DIR   two builds of gdrcp, run in turn
//	bench host -gdrcp FILE -tree DIR   loopback TCP, tmpfs to tmpfs: rsync and scp
//	bench bed -gdrcp FILE              in a guest of the RDMA bed: ib_write_bw and rcopy
//	bench wires -gdrcp FILE            in each of two guests: two devices and one
//
// With -short it transfers little, to check that every row of the table can be produced.
//
// The competitors of a comparison take turns, each is run once beforehand to warm up, and
// medians are compared. The result of each timed copy is verified.
package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
)

// options are the options on the command line.
type options struct {
	program string // path of the gdrcp to measure
	tree    string // directory whose copy is timed
	folder  string // on tmpfs: the benchmark creates its own directory in it
	disk    string // on a disk, likewise
	only    string // the only comparison to run, or empty for all
	rounds  int
	log     io.Writer // progress
	sizes
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	o := options{log: os.Stderr, sizes: full}
	if len(args) == 0 || !slices.Contains([]string{"host", "bed", "late", "wires", "pair"}, args[0]) {
		return fmt.Errorf("usage: bench host|bed|late|wires|pair -gdrcp FILE [-tree DIR] [-rounds N] [-short]")
	}
	flags := flag.NewFlagSet("bench "+args[0], flag.ContinueOnError)
	flags.StringVar(&o.program, "gdrcp", "./gdrcp", "the `FILE` to measure")
	flags.StringVar(&o.tree, "tree", "", "the `DIR` whose copy is timed")
	flags.StringVar(&o.folder, "folder", "/dev/shm", "a `DIR` on tmpfs to work in")
	flags.StringVar(&o.disk, "disk", "/var/tmp", "a `DIR` on a disk to work in")
	flags.IntVar(&o.rounds, "rounds", cmp.Or(map[string]int{"host": 5, "pair": 7}[args[0]], 3), "how often each competitor is timed")
	flags.StringVar(&o.only, "only", "", "only the comparison `NAME`: of the host half file, resume, checksum, disk, memory, tree or small, of two builds file, tree, memory, disk, resume or '1 KiB', of the bed rxe0, siw0, late or wires")
	earlier := flags.String("before", "", "an earlier build, as `FILE`, to compare with (pair)")
	isShort := flags.Bool("short", false, "move little, in one round, and judge nothing")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *isShort {
		o.sizes, o.rounds = short, 1
	}
	var err error
	if o.program, err = filepath.Abs(o.program); err != nil { // ssh starts in another directory
		return err
	}
	keys, err := os.MkdirTemp("", "gdrcp-bench-key-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(keys)
	if err := o.makeKey(ctx, keys); err != nil {
		return err
	}
	switch args[0] {
	case "host":
		return benchHost(ctx, o)
	case "pair":
		return benchPair(ctx, o, *earlier)
	}
	// A guest accesses the host's program over 9p, from which every start takes longer.
	inMemory := filepath.Join(keys, "gdrcp")
	if _, err := output(ctx, "cp", o.program, inMemory); err != nil {
		return err
	}
	o.program = inMemory
	switch args[0] {
	case "late":
		return benchLateDisk(ctx, o)
	case "wires":
		return benchWires(ctx, o, os.Getenv("NODE"), os.Getenv("BED"))
	}
	return benchBed(ctx, o)
}

// wants reports whether to run a comparison.
func (o options) wants(name string) bool { return o.only == "" || o.only == name }

// print prints the table. A short one has no goals.
func (o options) print(rows []row) error {
	if o.sizes == short {
		fmt.Println("Short: this shows that every row comes about; its figures mean nothing.")
		for i := range rows {
			rows[i].goal = 0
		}
	}
	return printTable(os.Stdout, rows)
}
