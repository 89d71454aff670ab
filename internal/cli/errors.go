package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"gdrcp/gpu"
	"gdrcp/internal/cli/args"
	"gdrcp/internal/fileset"
	"gdrcp/internal/printable"
	"gdrcp/internal/trust"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

// The exit codes, in --help, manuals and README.
const (
	exitOK          = 0
	exitError       = 1
	exitUsage       = 2
	exitPartial     = 3
	exitIntegrity   = 4
	exitUnsupported = 5
	exitInterrupted = 130
)

// exitCodeError is the exit code of an outcome that was already reported: there is
// nothing more to print.
type exitCodeError struct{ code int }

func (e *exitCodeError) Error() string { return fmt.Sprintf("exit code %d", e.code) }

// hintedError is an error with a remedy.
type hintedError struct {
	error
	hint string
}

func (h *hintedError) Unwrap() error { return h.error }

// resumableError ends a copy that the command again can resume.
type resumableError struct {
	error
	again   string
	resumes bool // in the middle of a file
}

func (r *resumableError) Unwrap() error { return r.error }

// hint says how to resume the copy, or how to copy to the same place.
func (r *resumableError) hint() string {
	if !r.resumes {
		return "run " + r.again + ": it copies to where this copy did"
	}
	return "run " + r.again + ": it goes on where this copy was cut off"
}

// failure is an error as the user sees it: a line, at most one hint, and an exit code.
type failure struct {
	text, hint string
	code       int
}

// explain prepares an error for the user. interrupted means that the user ended the program.
func explain(err error, interrupted bool) failure {
	var told *exitCodeError
	if errors.As(err, &told) {
		return failure{code: told.code}
	}
	if interrupted {
		f := failure{text: "interrupted", code: exitInterrupted}
		if errors.Is(err, errInPlace) {
			f.text += ": " + errInPlace.Error()
		}
		if r := (*resumableError)(nil); errors.As(err, &r) {
			f.hint = r.hint()
		}
		return f
	}
	return failure{text: lineOf(err), hint: hintOf(err), code: codeOf(err)}
}

func codeOf(err error) int {
	if errors.Is(err, args.ErrUsage) {
		return exitUsage
	}
	if u := (*unconfirmedError)(nil); errors.As(err, &u) {
		return u.code
	}
	// A peer's announcements obey the same rules as a manifest, but an error in them
	// does not mean a bad manifest.
	if isBadManifest(err) && !errors.Is(err, xfer.ErrProtocol) {
		return exitIntegrity
	}
	switch xfer.Classify(err) {
	case xfer.ClassUsage:
		return exitUsage
	case xfer.ClassIntegrity:
		return exitIntegrity
	case xfer.ClassUnsupported:
		return exitUnsupported
	}
	if errors.Is(err, rdma.ErrNoDevice) || errors.Is(err, rdma.ErrUnsupported) {
		return exitUnsupported
	}
	return exitError
}

// isBadManifest reports whether the error is about an invalid manifest.
func isBadManifest(err error) bool {
	for _, kind := range []error{
		manifest.ErrFormat, manifest.ErrTruncated, manifest.ErrVersion, manifest.ErrOrder, manifest.ErrRoot, manifest.ErrPath, manifest.ErrEntry,
	} {
		if errors.Is(err, kind) {
			return true
		}
	}
	return false
}

// lineOf returns an error in one line. Joined errors follow each other, without repetition.
func lineOf(err error) string {
	var parts []string
	for _, e := range split(err) {
		text := e.Error()
		if path, ok := e.(*fs.PathError); ok {
			text = fmt.Sprintf("%s %q: %v", path.Op, path.Path, path.Err)
		}
		for _, prefix := range []string{args.ErrUsage.Error() + ": ", xfer.ErrUsage.Error() + ": "} {
			text = strings.TrimPrefix(text, prefix)
		}
		text = printable.Text(text)
		if !contains(parts, text) {
			parts = append(parts, text)
		}
	}
	return strings.Join(parts, "; ")
}

// contains reports whether one of the parts contains the text.
func contains(parts []string, text string) bool {
	for _, p := range parts {
		if strings.Contains(p, text) {
			return true
		}
	}
	return false
}

// split separates errors that errors.Join joined.
func split(err error) []error {
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return []error{err}
	}
	children := joined.Unwrap()
	texts := make([]string, len(children))
	for i, c := range children {
		texts[i] = c.Error()
	}
	if err.Error() != strings.Join(texts, "\n") {
		return []error{err} // it wraps several errors but has its own text
	}
	var all []error
	for _, c := range children {
		all = append(all, split(c)...)
	}
	return all
}

// hintOf returns what the user could do about an error, if anything.
func hintOf(err error) string {
	var h *hintedError
	var op *rdma.OpError
	var probe *rdma.ProbeError
	var noGPU *gpu.ProbeError
	var refusedGPU *gpu.Error
	var permissive *trust.PermissiveError
	switch {
	case errors.As(err, &h):
		return h.hint
	case errors.As(err, &permissive):
		return permissive.Remedy()
	case errors.As(err, &noGPU) && noGPU.Hint != "":
		return noGPU.Hint
	case errors.As(err, &op) && op.Hint != "":
		return op.Hint
	case errors.As(err, &probe) && probe.Hint != "":
		return probe.Hint
	}
	var rejected *rdma.RejectedError
	var refused *xfer.RefusedError
	var resumable *resumableError
	switch {
	case errors.As(err, &resumable) && isNoSpace(err):
		return "make room at the destination and " + resumable.hint()
	case isNoSpace(err):
		return "make room at the destination and copy again"
	case resumable != nil:
		return resumable.hint()
	case errors.As(err, &refused):
		return hintOfRejection(refused.Code)
	case errors.Is(err, trust.ErrRefused):
		return "that server does not have this key, or has another secret under its name: compare the key files"
	case xfer.IsLockedMemory(err):
		return "raise the limit with ulimit -l unlimited (or LimitMEMLOCK= of a systemd unit), or use a smaller ring: --slots, --chunk-size"
	case errors.As(err, &refusedGPU) && refusedGPU.Hint() != "":
		return refusedGPU.Hint()
	case errors.As(err, &rejected):
		return hintOfRejection(rejected.Code)
	case errors.Is(err, syscall.ECONNREFUSED):
		return "is gdrcp serve running there? It listens on port 7473 unless told otherwise"
	case errors.Is(err, syscall.EADDRINUSE):
		return "another program uses that port, perhaps another gdrcp serve: --listen ADDR:PORT chooses another one"
	case errors.Is(err, rdma.ErrNotGdrcp):
		return "something else listens on that port: check host and port"
	case errors.Is(err, xfer.ErrPeerSilent), errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "check host and port, that the peer runs, and that no firewall is between"
	}
	return ""
}

// isNoSpace reports whether the destination is full. Errors of another host have no
// class for that, so their text decides.
func isNoSpace(err error) bool {
	var said *xfer.RemoteError
	return errors.Is(err, fileset.ErrNoSpace) || errors.As(err, &said) && said.Class == xfer.ClassError &&
		(strings.Contains(said.Text, fileset.ErrNoSpace.Error()) || strings.Contains(said.Text, syscall.EDQUOT.Error()))
}

func hintOfRejection(code rdma.RejectCode) string {
	switch code {
	case rdma.RejectVersion:
		return "install the same version of gdrcp at both ends"
	case rdma.RejectBusy:
		return "try again later, or give the server a higher --max-sessions, or its access file a higher max-sessions for the key"
	case rdma.RejectResources:
		return "try a smaller ring (--slots, --chunk-size); the server's log has the reason, and its limit is --max-memory"
	}
	return ""
}
