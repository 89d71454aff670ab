package remote

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Binary is a program that may run on another host.
type Binary struct {
	Path string
	// Machine is the output of uname -sm on hosts on which the binary runs:
	// "Linux x86_64".
	Machine string
	// Beside is the path of the program that this one was installed with. The
	// binary is not copied if users can change it who cannot change that
	// program. Empty: the binary is that program.
	Beside string
}

// fingerprint identifies a binary by its content.
type fingerprint struct {
	Binary
	sizeBytes int64
	sha256    string // in hex
	cksum     string // CRC and size, as cksum(1) prints them, joined by a dash
}

// The scripts are one line without single quotes and backslashes, so that every
// login shell passes them to sh unchanged. Their arguments are the SHA-256 and
// the cksum of each binary.
const (
	// scriptCheck defines ok FILE SHA256 CKSUM, which compares the content, and own, which
	// checks that no other user can replace a file: otherwise another program could take a
	// file's place between its check and its start. own checks the cache directory and
	// those above it as StrictModes of sshd_config(5) does: each belongs to the user or to
	// root, and only its owner may write. Above the cache directory others may write if
	// the sticky bit is set. The directories above the home directory are not checked: a
	// user who can replace the home directory controls what its shell starts anyway. own
	// descends the physical path, without following links, so that a directory that it has
	// passed cannot be replaced later. It sets bad to the first unsafe directory.
	scriptCheck = `set -f; d=${XDG_CACHE_HOME:-$HOME/.cache}/gdrcp; u=$(id -u); h=$(cd "${HOME:-/}" >/dev/null 2>&1 && pwd -P); ` +
		`says() { printf %s "` + scriptSays + `$1"; echo; exit; }; ` +
		`firm() { set -- "$2" $(command ls -ldn "$1"); case $4 in "$u"|0) ;; *) return 1 ;; esac; case $2 in $1) ;; *) return 1 ;; esac; }; ` +
		`fixed() { case $1 in /|"$h") ;; *) p=${1%/*}; fixed "${p:-/}" || return 1 ;; esac; ` +
		`firm "$1" "d????-??-*" || firm "$1" "d????????[tT]*" || { bad=$1; return 1; }; }; ` +
		`own() { fixed "$d" && { firm "$d" "d????-??-*" || { bad=$d; return 1; }; }; }; ` +
		`ok() { if command -v sha256sum >/dev/null 2>&1; then set -- "$1" "$2" "$3" $(sha256sum <"$1"); [ "$4" = "$2" ]; ` +
		`else set -- "$1" "$2" "$3" $(cksum <"$1"); [ "$4-$5" = "$3" ]; fi; }; `
	// scriptCached starts the first binary that is in the cache, has the right
	// content, and runs. The file's modification time records its last use. If
	// there is no such binary, word is set to the reason.
	scriptCached = scriptCheck + `word=$(uname -sm); if c=$(cd "$d" >/dev/null 2>&1 && pwd -P); then d=$c; ` +
		`if own; then while [ $# -gt 1 ]; do f=$d/gdrcp-$1; ` +
		`if [ -x "$f" ] && firm "$f" "-????-??-*" && ok "$f" "$1" "$2" && "$f" --version </dev/null >/dev/null 2>&1; ` +
		`then touch -c "$f" 2>/dev/null; exec "$f" ` + FarEndCommand + `; fi; shift 2; done; ` +
		`else word="` + saysUnsafe + ` $bad"; fi; fi; `
	scriptStart = scriptCached + scriptWord
	// scriptStartAny starts the gdrcp in the PATH if the cache has none.
	scriptStartAny = scriptCached + `command -v ` + defaultPath + ` >/dev/null 2>&1 && exec ` + defaultPath + ` ` + FarEndCommand + `; ` + scriptWord
	scriptWord     = `says "$word"`
	// scriptStore reads a binary from stdin. The binary is renamed to its final name only
	// after it was checked and has run. Other binaries that were used within a month are
	// kept: hosts of several architectures may share a home directory.
	scriptStore = scriptCheck + `umask 077; left() { rm -f "$t"; }; ` +
		`mkdir -p "$d" && c=$(cd "$d" >/dev/null && pwd -P) || says ` + saysUnwritten + `; d=$c; own || says "` + saysUnsafe + ` $bad"; ` +
		`t=$d/.gdrcp-$$; trap left EXIT; trap "exit 1" HUP INT PIPE TERM; cat >"$t" || says ` + saysUnwritten + `; ` +
		`ok "$t" "$1" "$2" || says ` + saysDamaged + `; chmod 700 "$t"; ` +
		`"$t" --version </dev/null >/dev/null 2>&1 || says ` + saysUnstarted + `; mv -f "$t" "$d/gdrcp-$1" || says ` + saysUnwritten + `; ` +
		`find "$d" -type f -name "*gdrcp-*" -mtime +30 -exec rm -f {} + 2>/dev/null; says ` + saysStored
	scriptSays = "gdrcp-bootstrap: "
)

// The scripts' answers, apart from a machine.
const (
	saysUnsafe    = "unsafe" // followed by the directory
	saysUnwritten = "unwritten"
	saysDamaged   = "damaged"
	saysUnstarted = "unstarted"
	saysStored    = "stored"
)

// errUnstarted is the error for a binary that does not run on the host.
var errUnstarted = errors.New("it does not start there")

// maxSaidBytes bounds a script's answer, which may contain a path.
const maxSaidBytes = 1 << 10

// Bootstrap starts a far end: the program that RemotePath names, if any;
// otherwise one of the binaries from the user's cache directory there, or the
// gdrcp in the PATH. If there is none, or it has another version, Bootstrap
// copies the first of the binaries that runs there to the cache directory. It
// reports a copy to tell. As with Connect, only ctx limits the time.
func (o *Origin) Bootstrap(ctx context.Context, binaries []Binary, tell func(string)) (*Link, error) {
	inPath := o.RemotePath == ""
	if !inPath {
		if link, err := o.Connect(ctx); !hasRemedy(err) {
			return link, err
		}
	}
	prints, passedOver, err := fingerprints(binaries)
	if err != nil {
		return nil, err
	}
	link, machine, err := o.startCached(ctx, prints, inPath)
	if inPath && hasRemedy(err) { // the gdrcp in the PATH does not work
		link, machine, err = o.startCached(ctx, prints, false)
	}
	if link != nil || err != nil {
		return link, err
	}
	if link, err = o.copyAndStart(ctx, prints, machine, tell); err != nil && passedOver != "" {
		err = fmt.Errorf("%w (%s was passed over: it must be a file that no other user can change)", err, passedOver)
	}
	return link, err
}

// hasRemedy reports whether another gdrcp on the host would fix an error.
func hasRemedy(err error) bool { return errors.Is(err, ErrMissing) || errors.Is(err, ErrVersion) }

// copyAndStart copies the first of the binaries for a machine that runs there,
// and starts it.
func (o *Origin) copyAndStart(ctx context.Context, prints []fingerprint, machine string, tell func(string)) (*Link, error) {
	tried := 0
	for _, p := range prints {
		if p.Machine != machine {
			continue
		}
		tried++
		tell(fmt.Sprintf("copying gdrcp to the cache directory of %s (%d MiB)", o.Host, (p.sizeBytes+1<<20-1)>>20))
		err := o.store(ctx, &p)
		if errors.Is(err, errUnstarted) {
			continue
		}
		if err != nil {
			return nil, err
		}
		link, _, err := o.startCached(ctx, []fingerprint{p}, false)
		if link == nil && err == nil {
			err = fmt.Errorf("the gdrcp that was copied to %s does not start there", o.Host)
		}
		return link, err
	}
	if tried == 0 {
		return nil, fmt.Errorf("%s is %s, and there is no gdrcp for such machines here: install gdrcp there", o.Host, machine)
	}
	return nil, fmt.Errorf("no gdrcp of this host starts on %s (%s): install gdrcp there", o.Host, machine)
}

// fingerprints reads the binaries that exist. passedOver is one that must not
// be copied, or empty.
func fingerprints(binaries []Binary) (prints []fingerprint, passedOver string, err error) {
	for _, b := range binaries {
		p := fingerprint{Binary: b}
		err := p.read()
		switch {
		case errors.Is(err, os.ErrNotExist):
		case errors.Is(err, errNotOurs):
			passedOver = b.Path
		case err != nil:
			return nil, "", fmt.Errorf("read %s: %w", b.Path, err)
		default:
			prints = append(prints, p)
		}
	}
	return prints, passedOver, nil
}

// errNotOurs is the error for a binary that is not a regular file, or that
// others could have put there.
var errNotOurs = errors.New("it is no file, or another user can change it")

// isOurs reports whether only users who can also change the program beside it can change a
// binary: in a directory like /tmp anybody can create a file of any name.
func (b *Binary) isOurs(f *os.File) (bool, error) {
	file, err := f.Stat()
	if err != nil || b.Beside == "" {
		return err == nil && file.Mode().IsRegular(), err
	}
	program, err := os.Stat(b.Beside)
	if err != nil {
		return false, err
	}
	theirs, ours := file.Sys().(*syscall.Stat_t), program.Sys().(*syscall.Stat_t)
	const others = 0o022
	byOwner := theirs.Uid == ours.Uid || theirs.Uid == 0 || theirs.Uid == uint32(os.Geteuid())
	byMode := theirs.Mode&others == 0 || theirs.Gid == ours.Gid && theirs.Mode&others&^ours.Mode == 0
	return file.Mode().IsRegular() && byOwner && byMode, nil
}

func (p *fingerprint) read() error {
	f, err := os.OpenFile(p.Path, os.O_RDONLY|syscall.O_NONBLOCK, 0) // it may be a pipe
	if err != nil {
		return err
	}
	defer f.Close()
	switch ours, err := p.isOurs(f); {
	case err != nil:
		return err
	case !ours:
		return errNotOurs
	}
	sha, crc := sha256.New(), newPosixCRC()
	if p.sizeBytes, err = io.Copy(io.MultiWriter(sha, crc), f); err != nil {
		return err
	}
	p.sha256 = hex.EncodeToString(sha.Sum(nil))
	p.cksum = fmt.Sprintf("%d-%d", crc.sum(p.sizeBytes), p.sizeBytes)
	return nil
}

// startCached starts the first of the binaries that is in the cache there. If
// none is, with inPath it starts the gdrcp in the PATH, and otherwise it
// returns the host's machine.
func (o *Origin) startCached(ctx context.Context, prints []fingerprint, inPath bool) (link *Link, machine string, err error) {
	script := scriptStart
	if inPath {
		script = scriptStartAny
	}
	run := []string{"sh", "-c", shellQuote(script), "sh"}
	for _, p := range prints {
		run = append(run, p.sha256, p.cksum)
	}
	link, silent, err := o.connect(ctx, run)
	if silent == nil {
		return link, "", err
	}
	machine, err = silent.said(o)
	return nil, machine, err
}

// unsafeError is the error for a cache directory, or one of its parents, in
// which others could replace the cached files.
type unsafeError struct{ host, dir string }

func (e *unsafeError) Error() string {
	return fmt.Sprintf("%s on %s belongs to another user, or others may write to it, so that they could replace the gdrcp that is kept in it: "+
		"take that right from them (chmod go-w), or name another directory by XDG_CACHE_HOME", e.dir, e.host)
}

// said finds the script's answer in the host's output. An unsafe directory is an error.
func (s *silence) said(o *Origin) (string, error) {
	for _, line := range s.lines {
		_, word, ok := strings.Cut(line, scriptSays)
		if !ok {
			continue
		}
		word = oneLine(word, maxSaidBytes)
		if dir, unsafe := strings.CutPrefix(word, saysUnsafe+" "); unsafe {
			return "", &unsafeError{o.Host, dir}
		}
		return word, nil
	}
	return "", o.diagnose(s)
}

// store copies a binary to the cache there.
func (o *Origin) store(ctx context.Context, p *fingerprint) error {
	f, err := os.Open(p.Path)
	if err != nil {
		return err
	}
	defer f.Close()
	command := Command{Rsh: o.Rsh, User: o.User, Host: o.Host, Run: []string{"sh", "-c", shellQuote(scriptStore), "sh", p.sha256, p.cksum}}
	proc, err := command.start(o.Stderr)
	if err != nil {
		return err
	}
	defer proc.abort()
	defer context.AfterFunc(ctx, func() {
		proc.stdin.Close()
		proc.out.Close()
	})()
	_, err = io.Copy(proc.stdin, f)
	proc.stdin.Close()
	said, readErr := io.ReadAll(io.LimitReader(proc.read, maxNoiseLines*maxLineBytes))
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	proc.end()
	word, sayErr := (&silence{proc, strings.Split(string(bytes.TrimSpace(said)), "\n")}).said(o)
	switch {
	case errors.As(sayErr, new(*unsafeError)): // it is the reason why the script read nothing
		return sayErr
	case word == saysStored:
		return nil
	case word == saysUnstarted:
		return errUnstarted
	case word == saysUnwritten:
		return fmt.Errorf("the cache directory of %s cannot be written", o.Host)
	case word != "":
		return fmt.Errorf("copying gdrcp to %s: it came %s", o.Host, word)
	}
	return errors.Join(sayErr, err, readErr)
}
