package soak

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"gdrcp/internal/trust"
	"gdrcp/rdma/rdmatest"
	"gdrcp/tests/launch"
)

// TestMain sets the program, and a file with the key that both ends share.
var binary, keyFile string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	launch.InMemory()
	dir, err := os.MkdirTemp("", "gdrcp-soak-")
	if err == nil {
		defer os.RemoveAll(dir)
		keyFile = filepath.Join(dir, "key")
		err = prepare(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

func prepare(dir string) error {
	key, err := trust.NewKey("soak")
	if err == nil {
		err = key.WriteFile(keyFile)
	}
	if err != nil {
		return err
	}
	binary, err = launch.Program(dir)
	return err
}

// plan is which steps are run: from one on, until a number or a time.
type plan struct {
	seed        string
	first, last int
	until       time.Time
	atOnce      int
}

func thePlan(t *testing.T) plan {
	number := func(name string) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil && os.Getenv(name) != "" {
			t.Fatalf("%s: %v", name, err)
		}
		return n
	}
	p := plan{seed: os.Getenv(rdmatest.Seed), first: 1, last: 12, atOnce: 3}
	if os.Getenv("GDRCP_TEST_RDMA") != "" { // its processors are emulated, too
		p.last, p.atOnce = 1, 1
	}
	if n := number("GDRCP_SOAK_STEP"); n > 0 {
		p.first, p.last, p.atOnce = n, n, 1
	} else if n := number("GDRCP_SOAK_SECONDS"); n > 0 {
		p.last, p.until = 1<<30, time.Now().Add(time.Duration(n)*time.Second)
	}
	return p
}

// TestSoak runs the steps in order, some of them in parallel.
func TestSoak(t *testing.T) {
	p := thePlan(t)
	t.Logf("%s=%q", rdmatest.Seed, p.seed)
	var next, ran atomic.Int64
	next.Store(int64(p.first))
	var g sync.WaitGroup
	for range p.atOnce {
		g.Go(func() {
			for n := int(next.Add(1) - 1); n <= p.last && (p.until.IsZero() || time.Now().Before(p.until)); n = int(next.Add(1) - 1) {
				t.Run(strconv.Itoa(n), func(t *testing.T) { runStep(t, p.seed, n, nil) })
				ran.Add(1)
			}
		})
	}
	g.Wait()
	t.Logf("%d steps; one runs again by make soak SEED=%s STEP=NUMBER", ran.Load(), p.seed)
}

// TestCritical runs a step with each of the critical faults, unless one step is wanted, or devices
// are emulated, to which they are all the same.
func TestCritical(t *testing.T) {
	if os.Getenv("GDRCP_SOAK_STEP") != "" || os.Getenv("GDRCP_TEST_RDMA") != "" {
		t.Skip("one step of TestSoak is run, or copies go over devices")
	}
	p := thePlan(t)
	for i := range critical {
		t.Run(critical[i].name, func(t *testing.T) {
			t.Parallel()
			runStep(t, p.seed, p.first, &critical[i])
		})
	}
}

// runStep runs the step of that number, with a random fault, or the one that is given.
func runStep(t *testing.T, seed string, n int, want *fault) {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s %d", seed, n)
	s := newStep(t, rand.New(rand.NewPCG(h.Sum64(), uint64(n))), want)
	how := "push"
	if s.local {
		how = "local"
	} else if !s.push {
		how = "pull"
	}
	began := time.Now()
	s.run()
	t.Logf("%s over %s, %d files of %d bytes, %q, %s: exit code %d, %.1f s", how, s.link.name, len(s.source.files), s.source.bytes, s.options, s.fault.name, s.client.cmd.ProcessState.ExitCode(), time.Since(began).Seconds())
}
