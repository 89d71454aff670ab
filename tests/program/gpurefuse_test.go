package program

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"gdrcp/tests/launch"
)

// gpuRefusal is a copy that must be refused.
type gpuRefusal struct {
	name string
	// here and there are the modes of the client's and the server's fake.
	here, there []string
	serve       []string
	args        []string
	code        int
	pattern     string // of the client's one line
}

// TestGPURefusals asks for GPUs that cannot be used: the client prints the reason in
// one line, even if the server found it, and nothing is left of the copy.
func TestGPURefusals(t *testing.T) {
	onHost(t)
	ok := []string(nil)
	for _, c := range []gpuRefusal{
		{"no GPU here", []string{"none"}, ok, nil, []string{"--gpu", "0"}, 5, `shows this process no GPU`},
		{"no GPU there", ok, []string{"none"}, nil, []string{"--remote-gpu", "0"}, 5, `shows this process no GPU`},
		{"no such GPU here", ok, ok, nil, []string{"--gpu", "7"}, 5, `there is no GPU 7, only 0 \(`},
		{"no such GPU there", ok, ok, nil, []string{"--remote-gpu", "7"}, 5, `there is no GPU 7, only 0 \(`},
		{"the server lends none", ok, ok, []string{"--gpu", "off"}, []string{"--remote-gpu", "0"}, 5, `this end lends no GPU memory`},
		{"driver mismatch", []string{"mismatch"}, ok, nil, []string{"--gpu", "0"}, 5, `CUDA_ERROR_SYSTEM_DRIVER_MISMATCH`},
		{"auto here, and no such GPU there", []string{"none"}, ok, nil, []string{"--gpu", "auto", "--remote-gpu", "7"}, 5, `there is no GPU 7, only 0 \(`},
		{"out of memory here", []string{"oom"}, ok, nil, []string{"--gpu", "0"}, 1, `CUDA_ERROR_OUT_OF_MEMORY`},
		{"out of memory there", ok, []string{"oom"}, nil, []string{"--remote-gpu", "0"}, 1, `CUDA_ERROR_OUT_OF_MEMORY`},
		{"too little memory", []string{"memory=16"}, ok, nil, []string{"--gpu", "0"}, 1, `CUDA_ERROR_OUT_OF_MEMORY`},
		{"no kernel here", []string{"noload=221"}, ok, nil, []string{"--gpu", "0"}, 5, `load kernels on GPU 0: CUDA_ERROR_JIT_COMPILER_NOT_FOUND`},
		{"no kernel there", ok, []string{"noload=221"}, nil, []string{"--remote-gpu", "0"}, 5, `load kernels on GPU 0: CUDA_ERROR_JIT_COMPILER_NOT_FOUND`},
		{"failing launch here", []string{"badlaunch"}, ok, nil, []string{"--gpu", "0", "--remote-gpu", "0"}, 1, `launch .* on GPU 0: CUDA_ERROR_LAUNCH`},
		{"failing launch there", ok, []string{"badlaunch"}, nil, []string{"--gpu", "0", "--remote-gpu", "0"}, 1, `launch .* on GPU 0: CUDA_ERROR_LAUNCH`},
		{"gpudirect, and no RDMA", ok, ok, nil, []string{"--transport", "auto", "--gpu", "0", "--require", "gpudirect"}, 5, `^gdrcp: gpudirect is required: .*(RDMA device|verbs|loopback)`},
		{"gpudirect by tcp", ok, ok, nil, []string{"--gpu", "0", "--require", "gpudirect"}, 2, `gpudirect is required and tcp was asked for`},
		{"gpudirect without GPUs", ok, ok, nil, []string{"--transport", "auto", "--require", "gpudirect"}, 2, `gpudirect is required, and no end is to use a GPU`},
		{"what is no GPU", ok, ok, nil, []string{"--gpu", "-1"}, 2, `--gpu`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			client, server := withGPUs(t, c.here), withGPUs(t, c.there)
			bothWays(t, func(t *testing.T, d direction) {
				s := newSidesAs(t, server, tcpLink(), c.serve...)
				s.as = client
				s.isRefused(t, d, c.args, c.code, c.pattern)
				s.stop()
			})
		})
	}
}

// isRefused runs a copy that fails and leaves nothing.
func (s *sides) isRefused(t *testing.T, d direction, args []string, code int, pattern string) {
	t.Helper()
	from, to := s.ends(d)
	makeFile(t, from+"/file", 3*mib+1, 1)
	s.copy(t, append(args, s.operands(d, s.via(), "file", "copy")...)...).wantFailure(code, pattern)
	nothingLeft(t, to)
}

// nothingLeft fails the test if a failed copy left anything.
func nothingLeft(t *testing.T, to string) {
	t.Helper()
	if _, err := os.Lstat(to + "/copy"); err == nil {
		t.Error("a copy that failed bears its final name")
	}
	noTemps(t, to)
}

// TestFailingKernel: after an error of a kernel the driver refuses everything.
func TestFailingKernel(t *testing.T) {
	onHost(t)
	for _, e := range []gpuEnds{{source: true}, {sink: true}} {
		t.Run(e.String(), func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, d direction) {
				// It also refuses to free memory, but memory that was not released is
				// reported.
				s := newSidesAs(t, withGPUs(t, []string{"badkernel"}), tcpLink())
				from, to := s.ends(d)
				makeFile(t, from+"/file", 3*mib+1, 1)
				p := s.copy(t, append(gpuZero(e, d), s.operands(d, s.via(), "file", "copy")...)...)
				p.wantFailure(1, `on GPU 0: CUDA_ERROR_LAUNCH_FAILED`)
				nothingLeft(t, to)
				s.as = how{}
				if e.there(d) {
					s.staysLost(t, d)
				}
				s.copy(t, s.operands(d, s.via(), "file", "copy")...).wantCode(0) // the server still runs
				if why := differAt(from+"/file", to+"/copy"); why != "" {
					t.Error(why)
				}
				s.stop()
			})
		})
	}
}

// TestLostGPUsEndAServer checks that this happens if the user asked for it, so that a
// supervisor restarts the server.
func TestLostGPUsEndAServer(t *testing.T) {
	onHost(t)
	t.Parallel()
	s := newSidesAs(t, withGPUs(t, []string{"badkernel"}), tcpLink(), "--exit-on-gpu-failure")
	s.as = how{}
	d := direction{push: true}
	makeFile(t, s.here+"/file", 3*mib+1, 1)
	client := start(t, s.as, append(append(s.copyArgs(), "--remote-gpu", "0"), s.operands(d, s.via(), "file", "copy")...)...)
	client.wait(launch.Slow(20 * time.Second))
	client.wantCode(1)
	s.process.wait(launch.Slow(20 * time.Second))
	s.process.wantCode(1)
	lines := strings.Split(s.stderr.String(), "\n")
	s.process.wantOne(lines, `^gdrcp: this process can use no GPU any more, after it failed to .*CUDA_ERROR_LAUNCH_FAILED \(719\)$`)
	s.process.wantOne(lines, `.*: start the process again: nothing else helps.*`)
}

// A server that is to end because it lost its GPUs waits until the sessions of other
// clients end.
func TestLostGPUsEndNoSession(t *testing.T) {
	onHost(t)
	t.Parallel()
	s := newSidesAs(t, withGPUs(t, []string{"badkernel"}), tcpLink(), "--exit-on-gpu-failure")
	s.as = how{}
	d := direction{push: true}
	makeFile(t, s.here+"/file", 3*mib+1, 1)
	other := hold(t, 2, append(s.copyArgs(), s.url("other"))...)
	other.connected()
	client := start(t, s.as, append(append(s.copyArgs(), "--remote-gpu", "0"), s.operands(d, s.via(), "file", "copy")...)...)
	client.wait(launch.Slow(20 * time.Second))
	client.wantCode(1)
	other.send(3)
	other.finish(s.there + "/other")
	s.process.wait(launch.Slow(20 * time.Second))
	s.process.wantCode(1)
	s.process.wantOne(strings.Split(s.stderr.String(), "\n"), `.*\(719\); clients get host memory until no session runs, and then the server ends$`)
}

// gpuZero returns the options that require GPU 0 at these ends.
func gpuZero(e gpuEnds, d direction) []string {
	args := e.args(d)
	for i := range args {
		args[i] = strings.Replace(args[i], "auto", "0", 1)
	}
	return args
}

// staysLost uses a server whose GPU had a fatal error again: a client that requires the
// GPU is refused with the reason, and others get host memory.
func (s *sides) staysLost(t *testing.T, d direction) {
	t.Helper()
	lost := `this process can use no GPU any more, .*CUDA_ERROR_LAUNCH_FAILED \(719\)`
	s.copy(t, append(s.operands(d, s.via(), "file", "copy"), "--remote-gpu", "0")...).wantFailure(5, lost)
	p := s.copy(t, append(s.operands(d, s.via(), "file", "auto"), "--remote-gpu", "auto")...).wantCode(0)
	p.wantOne(strings.Split(p.stderr.String(), "\n"), `^gdrcp: slots at the other end in host memory: .*`+lost)
}

// TestHungGPU: a hanging GPU blocks neither the interrupt of its copy nor the server,
// which serves the next copy from host memory.
func TestHungGPU(t *testing.T) {
	onHost(t)
	t.Parallel()
	launches := t.TempDir() + "/launches"
	s := newSidesAs(t, withGPUs(t, []string{"hang", "launches", "log=" + launches}), tcpLink())
	d := direction{push: true}
	from, to := s.ends(d)
	makeFile(t, from+"/file", 3*mib+1, 1)
	for _, gpu := range []string{"--gpu", "--remote-gpu"} {
		p := start(t, s.as, append(append(s.copyArgs(), gpu, "0"), s.operands(d, s.via(), "file", "copy")...)...)
		until(t, launch.Slow(patience), func() bool {
			text, _ := os.ReadFile(launches) // it does not exist before the first launch
			return strings.Contains(string(text), "launch ")
		}, func() string { return fmt.Sprintf("no kernel is launched: %s", p) })
		must(t, os.Remove(launches)) // for the next launch
		began := time.Now()
		p.signal(syscall.SIGINT)
		p.wait(launch.Slow(15 * time.Second))
		p.wantCode(130)
		t.Logf("%s: the interrupt took %v", gpu, time.Since(began))
		nothingLeft(t, to)
	}
	s.copy(t, append(s.operands(d, s.via(), "file", "copy"), "--remote-gpu", "auto")...).wantCode(0)
	if why := differAt(from+"/file", to+"/copy"); why != "" {
		t.Error(why)
	}
	s.stop()
}

// TestNoGPUForAuto: --gpu auto accepts host memory, and prints why.
func TestNoGPUForAuto(t *testing.T) {
	onHost(t)
	for mode, why := range map[string]string{
		"none":       `no GPU \(CUDA_ERROR_NO_DEVICE\)`,
		"oom":        `CUDA_ERROR_OUT_OF_MEMORY \(2\): take another GPU.*`,
		"memory=17":  `CUDA_ERROR_OUT_OF_MEMORY \(2\): take another GPU.*`,
		"noload=200": `CUDA_ERROR_INVALID_IMAGE \(200\): a newer NVIDIA driver.*`,
		"noload=209": `CUDA_ERROR_NO_BINARY_FOR_GPU \(209\): a newer NVIDIA driver.*`,
		"noload=218": `CUDA_ERROR_INVALID_PTX \(218\): a newer NVIDIA driver.*`,
		"noload=221": `CUDA_ERROR_JIT_COMPILER_NOT_FOUND \(221\): install libnvidia-ptxjitcompiler.*`,
		"noload=222": `CUDA_ERROR_UNSUPPORTED_PTX_VERSION \(222\): a newer NVIDIA driver.*`,
		"noload=223": `CUDA_ERROR_JIT_COMPILATION_DISABLED \(223\): unset CUDA_DISABLE_PTX_JIT.*`,
		"noload=999": `CUDA_ERROR_UNKNOWN \(999\): check .nvidia-smi.*`,
		"badlaunch":  `CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES \(701\): check .nvidia-smi.*`,
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			bothWays(t, func(t *testing.T, d direction) { autoTakesHost(t, d, mode, why) })
		})
	}
}

func autoTakesHost(t *testing.T, d direction, mode, why string) {
	s := newSidesAs(t, withGPUs(t, []string{mode}), tcpLink())
	from, to := s.ends(d)
	makeFile(t, from+"/file", 3*mib+1, 1)
	s.options = []string{"--gpu", "auto", "--remote-gpu", "auto"}
	p := s.copy(t, s.operands(d, s.via(), "file", "text")...).wantCode(0)
	lines := strings.Split(p.stderr.String(), "\n")
	p.wantOne(lines, `^gdrcp: slots here in host memory: .*`+why+`$`)
	p.wantOne(lines, `^gdrcp: slots at the other end in host memory: .*`+why+`$`)
	p.wantOne(lines, `^copied 1 file`)
	p = s.copy(t, append(s.operands(d, s.via(), "file", "json"), "--json")...).wantCode(0)
	for _, end := range []string{"local", "remote"} {
		m, _ := p.event("summary")[end+"_slots"].(map[string]any)
		if text, _ := m["why"].(string); m["gpu"] != -1.0 || m["rung"] != "host" || !regexp.MustCompile(why).MatchString(text) {
			t.Errorf("%s: %v", end, m)
		}
	}
	for _, name := range []string{"text", "json"} {
		if why := differAt(from+"/file", to+"/"+name); why != "" {
			t.Errorf("%s: %s", name, why)
		}
	}
	s.stop()
}

// TestGPUDirectRequired is about RDMA devices: if the device does not reach the GPU's
// memory, or the processor has to touch every chunk, the copy is refused.
func TestGPUDirectRequired(t *testing.T) {
	needRDMA(t)
	type ask struct {
		e    gpuEnds
		args []string
		why  string
	}
	for _, w := range gpuWays(t) {
		var asks []ask
		for _, e := range []gpuEnds{{source: true}, {sink: true}} {
			switch {
			case !w.direct():
				asks = append(asks, ask{e, nil, w.why})
			case w.rung == "dma-buf":
				asks = append(asks, ask{e, []string{"--compress", "s2"}, `compressed`}, ask{e, []string{"--hash", "xxh3"}, `blake3 only`})
			} // TestGPUCopies shows that peermem is enough
		}
		if len(asks) == 0 {
			continue
		}
		t.Run(w.name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, d direction) {
				if sampledOut(w.link, d) {
					return
				}
				s := newSidesAs(t, w.as, w.link)
				for _, a := range asks {
					args := append(append(a.e.args(d), "--require", "gpudirect"), a.args...)
					s.isRefused(t, d, args, 5, `gpudirect is required: .*`+a.why)
				}
				s.stop()
			})
		})
	}
}
