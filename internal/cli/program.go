// Package cli is the command line: commands and options, output for people and
// programs, and exit codes. It passes the providers to the engine.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"gdrcp/internal/cli/args"
	"gdrcp/internal/remote"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

// Main runs the command of the process's arguments and returns the exit code. version is that of
// the build. If it is empty, the toolchain's build information is used. Call Main once in a
// process: it takes over the signals, the standard streams and the memory limits.
func Main(version string) int {
	// The first signal asks for a clean end. After it the defaults apply again, so that
	// a second signal kills.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	// The reader of standard output or error may go away. That is a write error like
	// any other, and does not end a server or a copy. The signal is caught rather than
	// ignored, because programs started here would inherit that it is ignored.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	boundHeap(xfer.Load{Sessions: 1})
	disableCoreDumps()
	var gpus gpuDriver
	p := &program{
		version: version,
		stdin:   inheritedInput(), stdout: inheritedOutput(), stderr: os.Stderr, getenv: os.Getenv, started: time.Now(),
		input: standardInput, output: standardOutput,
		verbs: newVerbs(), tcp: newTCP(), kernelDevices: kernelDevices, gpus: gpus.open, timeouts: xfer.DefaultTimeouts(),
		catchHangups: catchHangups,
	}
	code := p.run(ctx, os.Args)
	if err := gpus.close(); err != nil { // the copy itself is complete
		fmt.Fprintf(p.stderr, "gdrcp: %s\n", lineOf(err))
	}
	return code
}

// program is one run of gdrcp. It holds everything that a run uses, apart from files
// and the providers.
type program struct {
	version                      string // see Main
	stdin                        io.Reader
	stdout, stderr               io.Writer // run replaces them by checkedStdout and checkedStderr
	checkedStdout, checkedStderr *output
	ending                       <-chan struct{} // see output
	onlyPrints                   bool            // see printingContext
	input, output                stream          // for data of copies
	eventsOut                    io.Writer       // the destination of --json
	getenv                       func(string) string
	started                      time.Time
	verbs, tcp                   rdma.Provider
	kernelDevices                string // a directory, see hasDevice
	gpus                         xfer.GPUs
	timeouts                     xfer.Timeouts
	oneCPU                       bool     // see limitCPUs
	givenOptions                 []string // options of the command line, as --name=value
	// relayed is the copy that another host asked for, or nil.
	relayed *remote.Run
	// catchHangups begins to catch SIGHUP. If it is nil, SIGHUP is not caught.
	catchHangups func() <-chan os.Signal
	hangups      <-chan os.Signal
}

func catchHangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	return c
}

// handleHangups handles SIGHUP. A server reloads its keys, see handleSignals. Every other command
// ends, unless nohup ignores the signal. A terminal that goes away sends it more than once.
func (p *program) handleHangups(ctx context.Context, command string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	if p.catchHangups == nil || (command != serveName && signal.Ignored(syscall.SIGHUP)) {
		return ctx, cancel
	}
	p.hangups = p.catchHangups()
	if command != serveName {
		go func() {
			select {
			case <-p.hangups:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}

// run runs the command of the arguments and returns the exit code. argv[0] is the
// program's name. It ends early, and cleanly, when ctx ends.
func (p *program) run(ctx context.Context, argv []string) int {
	ending, hurry := context.WithCancel(ctx)
	defer hurry()
	p.ending = ending.Done()
	p.checkedStdout = p.newOutput("standard output", p.stdout, false, 0)
	p.checkedStderr = p.newOutput("standard error", p.stderr, true, readerPatience)
	p.stdout, p.stderr = p.checkedStdout, p.checkedStderr
	app := p.app()
	line, err := args.Arrange(app, argv[1:])
	p.eventsOut = p.eventsTo(line, argv[1:])
	switch {
	case err != nil:
	case line.Help:
		p.onlyPrints = true
		err = writeHelp(p.stdout, app, line)
	default:
		p.givenOptions = line.Options
		var cancel context.CancelFunc
		ctx, cancel = p.handleHangups(ctx, line.Command.Name)
		defer cancel()
		defer context.AfterFunc(ctx, hurry)()
		err = app.RunContext(ctx, line.Args)
	}
	var told *exitCodeError
	errors.As(err, &told)
	if err == nil || told != nil {
		return p.finish(told)
	}
	if p.endedByOutput(err) {
		return p.finish(nil)
	}
	if asksJSON(argv[1:]) {
		newEvents(p.eventsOut).emitError(err, ctx.Err() != nil)
		if p.eventsOut == p.stderr { // a text would disturb the events there
			return p.lastWords(explain(err, ctx.Err() != nil).code)
		}
	}
	return p.lastWords(p.fail(ctx, err))
}

// lastWords waits at most lastWordsTime for both outputs to be written, and returns code.
func (p *program) lastWords(code int) int {
	var outputs sync.WaitGroup
	outputs.Go(func() { _ = p.checkedStdout.finish() })
	outputs.Go(func() { _ = p.checkedStderr.finish() }) // this error cannot be printed
	outputs.Wait()
	return code
}

// finish returns the exit code of a finished run. Output that did not reach standard output or
// standard error is an error too, because a truncated list or log looks complete.
func (p *program) finish(told *exitCodeError) int {
	code := exitOK
	if lost := p.checkedStdout.finish(); p.readerHasLeft() {
		code = exitError
	} else if lost != nil {
		code = p.fail(context.Background(), lost)
	}
	if p.checkedStderr.finish() != nil { // this error cannot be printed
		code = exitError
	}
	if told != nil {
		code = told.code
	}
	return code
}

// asksJSON looks for --json without parsing the options, because they may be what is wrong.
func asksJSON(args []string) bool {
	for _, a := range args {
		if a == "--" {
			return false
		}
		name, value, given := strings.Cut(a, "=")
		if wanted, err := strconv.ParseBool(value); (name == "--json" || name == "-json") && (!given || wanted && err == nil) {
			return true
		}
	}
	return false
}

// fail prints the error, unless it was already printed, and returns the exit code.
func (p *program) fail(ctx context.Context, err error) int {
	f := explain(err, ctx.Err() != nil)
	if f.text != "" {
		fmt.Fprintf(p.stderr, "gdrcp: %s\n", f.text)
	}
	if f.hint != "" {
		fmt.Fprintf(p.stderr, "hint: %s\n", f.hint)
	}
	return f.code
}

// versionText returns the version of the build or, without one, of the toolchain's
// build information.
func (p *program) versionText() string {
	if p.version != "" {
		return p.version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

// client returns the engine's client with this program's providers.
func (p *program) client() *xfer.Client {
	return &xfer.Client{Verbs: p.verbs, TCP: p.tcp, GPUs: p.gpus}
}
