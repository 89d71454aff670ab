// Package rdmatest is the conformance suite for every rdma.Provider, and a
// wrapper that injects faults into any provider.
//
// A provider's test binary calls [Main] from its TestMain, because some cases
// need a second process that can be killed and stopped, and [Run] from a test:
//
//	func TestMain(m *testing.M) { os.Exit(rdmatest.Main(m, tcp.New())) }
//
//	func TestConformance(t *testing.T) {
//		rdmatest.Run(t, rdmatest.Config{Provider: tcp.New(), Device: "tcp", …})
//	}
//
// Both ends are in the test's process, on two rails, except in the cases with a second
// process. Memory is mapped, never on the Go heap. Every case also checks that it leaks no
// goroutine, file descriptor, device mapping or pinned memory.
package rdmatest

import (
	"cmp"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"gdrcp/rdma"
)

// TimeFactorEnv names the environment variable that multiplies every pause and
// limit of the suite, for slow machines.
const TimeFactorEnv = "GDRCP_TEST_TIME_FACTOR"

// Config configures the suite. Provider, Device and ListenAddr are required.
type Config struct {
	Provider rdma.Provider
	// Device carries the rail that dials, AcceptDevice the other rail. An empty
	// AcceptDevice means Device.
	Device       string
	AcceptDevice string
	// ListenAddr is the address that the suite listens on, one of
	// AcceptDevice's, usually with port 0.
	ListenAddr netip.AddrPort

	// WriteBytes is the longest Write tried; 0 means 64 MiB, and 16 MiB with -short.
	WriteBytes int
	// ManyWRs is the number of work requests that counts as many; 0 means
	// 20,000, and 5,000 with -short.
	ManyWRs int
	// TimeFactor multiplies every pause and limit; 0 means that of
	// TimeFactorEnv, or else 1. For limits it is at least MachineFactor.
	TimeFactor float64

	// ImmKind is the kind that Conn.ImmKind must return without ForceImmSend; ImmUnknown
	// accepts either. Devices differ: siw has no RDMA Write with immediate.
	ImmKind rdma.ImmKind
	// AccessTold is the set of ends that must get ErrAccess when an access was
	// refused. Providers differ: the Conn dies at both ends, but with verbs the
	// responder may see only a disconnect, and with iWARP so may the initiator.
	AccessTold AccessTold
	// StoppedPeerTakesWrites: a device continues to serve remote Writes while its process
	// is stopped, so the send queue does not fill up, and completions count as signs of
	// life. This is true of verbs, not of sockets.
	StoppedPeerTakesWrites bool
	// ReadsUnchecked: the device serves Reads of regions without RemoteRead.
	// This is a defect: siw's kernel driver checks only the right to write, as
	// a comment in its source says.
	ReadsUnchecked bool
	// LandsLate is how long after MR.Close a Write that was already landing may
	// still land. This is a defect of some devices: siw's kernel driver looks
	// up the region before it copies a packet's data, and does not wait for
	// that copy when the region is deregistered.
	LandsLate time.Duration
	// OneProcess: the provider reaches no other process, so the cases with a second
	// process are skipped. This is true of a provider that runs over a pipe.
	OneProcess bool
}

// AccessTold is a set of ends of a Conn.
type AccessTold uint8

// The ends of a refused remote access.
const (
	// TellInitiator is the end that posted the work request.
	TellInitiator AccessTold = 1 << iota
	// TellOwner is the end whose memory the work request targeted.
	TellOwner
)

// suite is one Run.
type suite struct {
	Config
	factor, limitFactor float64
}

// testCase is one subtest of the suite.
type testCase struct {
	name string
	run  func(t *testing.T, s *suite)
}

// Run runs the suite.
func Run(t *testing.T, cfg Config) {
	groups := [][]testCase{dataCases, accessCases, queueCases, connectCases, closeCases, loopbackCases}
	if !cfg.OneProcess {
		groups = append(groups, processCases)
	}
	newSuite(t, cfg).run(t, groups...)
}

func newSuite(t *testing.T, cfg Config) *suite {
	s := &suite{Config: cfg, factor: cfg.TimeFactor, limitFactor: cfg.TimeFactor}
	if s.factor == 0 {
		s.factor = envTimeFactor(t)
		s.limitFactor = max(s.factor, MachineFactor)
	}
	if s.AcceptDevice == "" {
		s.AcceptDevice = s.Device
	}
	long, many := 64<<20, 20000
	if testing.Short() {
		long, many = 16<<20, 5000
	}
	s.WriteBytes, s.ManyWRs = cmp.Or(s.WriteBytes, long), cmp.Or(s.ManyWRs, many)
	return s
}

func (s *suite) run(t *testing.T, groups ...[]testCase) {
	// Objects that are made once per process, such as a loaded library, are not leaks.
	t.Run("WarmUp", func(t *testing.T) { testGreeting(t, s) })
	for _, group := range groups {
		for _, c := range group {
			t.Run(c.name, func(t *testing.T) {
				checkLeaks(t, s)
				c.run(t, s)
			})
		}
	}
}

func envTimeFactor(t *testing.T) float64 {
	text := os.Getenv(TimeFactorEnv)
	if text == "" {
		return 1
	}
	factor, err := strconv.ParseFloat(text, 64)
	if err != nil || factor <= 0 {
		t.Fatalf("%s=%q is no positive number", TimeFactorEnv, text)
	}
	return factor
}

// scaled returns a pause, or a timeout that a fault reaches, multiplied by the
// time factor.
func (s *suite) scaled(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.factor)
}

// limit extends a timeout that only a failure reaches, see Stretch.
func (s *suite) limit(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.limitFactor)
}

// patience is the time within which an expected event must happen.
func (s *suite) patience() time.Duration { return s.limit(10 * time.Second) }

// railConfig is the default configuration of the cases.
func (s *suite) railConfig() rdma.RailConfig {
	return rdma.RailConfig{
		Conns: 4, SendDepth: 32, RecvDepth: 32, MsgBytes: 1024, WriteBytes: s.WriteBytes,
	}
}
