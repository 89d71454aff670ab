package remote

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"

	"gdrcp/internal/trust"
)

// A message on the stream for the set-up:
//
//	offset  bytes  field
//	     0      1  kind
//	     1      4  length of the body, little-endian
//	     5         body: JSON; raw bytes in output, input and manifest; empty in beat
//
// Paths and options are base64 in JSON, because they need not be UTF-8. Readers
// ignore unknown fields. Both programs have the same protocol version and the
// same setUpVersion: the banner is checked before the first message.
const (
	// setUpVersion is the version of these messages. Since 2 serve describes the only copy
	// that a far end admits; a far end of version 1 admits any copy. Since 3 a far end can
	// be asked to read files. Since 4 a destination can be asked how its copy ended.
	setUpVersion     = 4
	oneCopyVersion   = 2
	messageHeadBytes = 5
	// maxMessageBytes bounds a body.
	maxMessageBytes = 4 << 20
	// maxPaths bounds the paths that a command line's patterns expand to.
	maxPaths = 100_000
	// maxSessionBytes bounds the memory that is announced for a session.
	maxSessionBytes = 1 << 40
)

// kind is the kind of a message.
type kind uint8

const (
	kindServe   kind = iota + 1 // origin: serve the holder of this key
	kindRun                     // origin: copy, as the client of another far end
	kindOffer                   // far end, once: the addresses at which it can be reached
	kindRefusal                 // far end: the reason why it cannot do what was asked
	kindStdout                  // far end that copies: its output
	kindStderr
	kindEnd  // far end that copies: its exit code
	kindBeat // either: a sign of life

	kindAudit    // origin: read files, and report their contents
	kindInput    // origin: a part of a manifest, or of a list of names; empty at the end
	kindManifest // far end that reads: a part of the manifest
	kindFinding  // far end that reads: a report about a path
	kindTally    // far end that reads: its progress
	kindAudited  // far end that reads: the end

	kindOutcome // origin, empty: how did the copy end? far end that serves: the answer
	kindsEnd
)

// errMessage is the error for an invalid message.
var errMessage = errors.New("an invalid message from the other end")

// Serve asks a far end to serve the holder of the key, until the pipe ends.
type Serve struct {
	Key trust.Key
	// Copy is the only copy that the holder of the key may make.
	Copy Copy
	// Sources are the paths to read there. They may be patterns, for Expand.
	Sources []string
	// SessionBytes is the most memory that a server reserves for the coming session:
	// rings and their buffers. 0: unknown.
	SessionBytes int64
}

// Copy is the only copy that a far end serves. The origin sends it through ssh,
// because the host that uses the key may be another one.
type Copy struct {
	// Push: the far end is the destination, and Dest is the path there, as the user wrote
	// it. Otherwise the far end has the sources, which are listed in Serve.
	Push bool
	Dest string
	// From are the sources of a push by a third host, as the user wrote them. Nil: the
	// sources are on the origin, which knows their names.
	From []string
	// Terms are the copy's options, in the form for xfer.NewGrant.
	Terms []byte
}

// Offer is the answer to Serve.
type Offer struct {
	Home      string // absolute
	Addresses []Address
	NoRails   string     // the reason if there is no verbs address
	NoTCP     string     // the reason if there is no TCP address
	Expanded  [][]string // the expansion of each source
	// Machine is a proof, computed with the key, of the machine on which the
	// far end runs. It may be empty.
	Machine []byte
}

// Run asks a far end to copy from itself to another far end, which serves.
type Run struct {
	Key       trust.Key
	Addresses []Address
	NoRails   string
	NoTCP     string
	Machine   []byte   // from the offer
	From, To  string   // the hosts, for messages
	Args      []string // the options on the command line
	Sources   []string
	Dest      string
	Terminal  bool // stderr is shown on a terminal
	Columns   int  // the terminal's width in that case; 0: unknown
}

// keyFields is the form of a key in the pipe. A key is sent over nothing else.
type keyFields struct {
	ID     string `json:"id"`
	Secret []byte `json:"secret"`
}

type serveFields struct {
	Key     keyFields   `json:"key"`
	Copy    *copyFields `json:"copy"`
	Sources [][]byte    `json:"sources"`

	SessionBytes int64 `json:"session_bytes"`
}

type copyFields struct {
	Push  bool     `json:"push"`
	Dest  []byte   `json:"dest"`
	From  [][]byte `json:"from,omitempty"`
	Terms []byte   `json:"terms"`
}

type offerFields struct {
	Home      []byte     `json:"home"`
	Addresses []Address  `json:"addresses"`
	NoRails   string     `json:"no_rails"`
	NoTCP     string     `json:"no_tcp"`
	Expanded  [][][]byte `json:"expanded"`
	Machine   []byte     `json:"machine,omitempty"`
}

type runFields struct {
	Key       keyFields `json:"key"`
	Addresses []Address `json:"addresses"`
	NoRails   string    `json:"no_rails"`
	NoTCP     string    `json:"no_tcp"`
	Machine   []byte    `json:"machine,omitempty"`
	From      string    `json:"from"`
	To        string    `json:"to"`
	Args      [][]byte  `json:"args"`
	Sources   [][]byte  `json:"sources"`
	Dest      []byte    `json:"dest"`
	Terminal  bool      `json:"terminal"`
	Columns   uint16    `json:"columns,omitempty"`
}

type refusalFields struct {
	Text  string `json:"text"`
	Class uint8  `json:"class,omitempty"`
}

// endFields is the end of a copy: its exit code and, for an outcome, the reason.
type endFields struct {
	Code int    `json:"code"`
	Text string `json:"text,omitempty"`
}

func decodeEnd(body []byte) (f endFields, err error) {
	err = decode(body, &f)
	if err == nil && (f.Code < 0 || f.Code > 255) {
		err = fmt.Errorf("%w: exit code %d", errMessage, f.Code)
	}
	return f, err
}

// octets and texts convert names to a form that JSON preserves, and back.
func octets(names []string) [][]byte {
	if names == nil {
		return nil
	}
	out := make([][]byte, len(names))
	for i, name := range names {
		out[i] = []byte(name)
	}
	return out
}

func texts(names [][]byte) []string {
	if names == nil {
		return nil
	}
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = string(name)
	}
	return out
}

func fieldsOf(k trust.Key) keyFields { return keyFields{k.ID, k.Secret.Bytes()} }

func (c *Copy) fields() *copyFields {
	return &copyFields{c.Push, []byte(c.Dest), octets(c.From), c.Terms}
}

func (f *keyFields) key() (trust.Key, error) {
	k := trust.Key{ID: f.ID}
	if err := trust.CheckID(f.ID); err != nil {
		return k, err
	}
	if len(f.Secret) != trust.SecretBytes {
		return k, fmt.Errorf("%w: a secret of %d bytes", errMessage, len(f.Secret))
	}
	k.Secret = trust.NewSecret([trust.SecretBytes]byte(f.Secret))
	return k, nil
}

// writeMessage sends a message. fields is nil, bytes, or a value to send as JSON.
func writeMessage(w io.Writer, k kind, fields any) error {
	body, isBytes := fields.([]byte)
	if !isBytes && fields != nil {
		var err error
		if body, err = json.Marshal(fields); err != nil {
			return err
		}
	}
	if len(body) > maxMessageBytes {
		return fmt.Errorf("a message of %d bytes for the other end is too long: at most %d", len(body), maxMessageBytes)
	}
	b := make([]byte, messageHeadBytes, messageHeadBytes+len(body))
	b[0] = byte(k)
	binary.LittleEndian.PutUint32(b[1:], uint32(len(body)))
	_, err := w.Write(append(b, body...))
	return err
}

// readMessage returns the next message. io.EOF means that no message follows.
func readMessage(r io.Reader) (kind, []byte, error) {
	var head [messageHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := binary.LittleEndian.Uint32(head[1:])
	if n > maxMessageBytes || head[0] == 0 || kind(head[0]) >= kindsEnd {
		return 0, nil, fmt.Errorf("%w: kind %d, %d bytes", errMessage, head[0], n)
	}
	// This allocates no memory for bytes that have not arrived.
	body, err := io.ReadAll(io.LimitReader(r, int64(n)))
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	return kind(head[0]), body, err
}

func decode(body []byte, fields any) error {
	if err := json.Unmarshal(body, fields); err != nil {
		return fmt.Errorf("%w: %w", errMessage, err)
	}
	return nil
}

func decodeServe(body []byte) (*Serve, error) {
	var f serveFields
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	k, err := f.Key.key()
	if err != nil {
		return nil, err
	}
	if f.SessionBytes < 0 || f.SessionBytes > maxSessionBytes {
		return nil, fmt.Errorf("%w: a session of %d bytes", errMessage, f.SessionBytes)
	}
	if f.Copy == nil || f.Copy.Push && len(f.Sources) > 0 || !f.Copy.Push && len(f.Copy.Dest)+len(f.Copy.From) > 0 {
		return nil, fmt.Errorf("%w: it does not say which copy to serve", errMessage)
	}
	c := Copy{Push: f.Copy.Push, Dest: string(f.Copy.Dest), From: texts(f.Copy.From), Terms: f.Copy.Terms}
	return &Serve{Key: k, Copy: c, Sources: texts(f.Sources), SessionBytes: f.SessionBytes}, nil
}

func decodeRun(body []byte) (*Run, error) {
	var f runFields
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	k, err := f.Key.key()
	if err == nil {
		err = checkAddresses(f.Addresses)
	}
	if err != nil {
		return nil, err
	}
	return &Run{k, f.Addresses, oneLine(f.NoRails, maxLineBytes), oneLine(f.NoTCP, maxLineBytes), f.Machine, f.From, f.To, texts(f.Args), texts(f.Sources), string(f.Dest), f.Terminal, int(f.Columns)}, nil
}

// decodeOffer checks all of an offer except the expansions.
func decodeOffer(body []byte) (*Offer, error) {
	var f offerFields
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	o := &Offer{Home: string(f.Home), Addresses: f.Addresses, NoRails: oneLine(f.NoRails, maxLineBytes), NoTCP: oneLine(f.NoTCP, maxLineBytes), Machine: f.Machine}
	if !filepath.IsAbs(o.Home) {
		return nil, fmt.Errorf("%w: home directory %q", errMessage, o.Home)
	}
	total := 0
	for _, names := range f.Expanded {
		total += len(names)
		o.Expanded = append(o.Expanded, texts(names))
	}
	if total > maxPaths {
		return nil, fmt.Errorf("%w: %d paths", errMessage, total)
	}
	return o, checkAddresses(o.Addresses)
}

func checkAddresses(addrs []Address) error {
	if len(addrs) > MaxAddresses {
		return fmt.Errorf("%w: %d addresses", errMessage, len(addrs))
	}
	for i := range addrs {
		a := &addrs[i]
		a.Device = oneLine(a.Device, maxVersionBytes)
		// A zone is arbitrary text, and is displayed with the address.
		zone := a.Addr.Addr().Zone()
		if a.Transport != "verbs" && a.Transport != "tcp" || !isHost(a.Addr.Addr()) || a.Addr.Port() == 0 || !(a.RateGbps >= 0) || oneLine(zone, maxVersionBytes) != zone {
			return fmt.Errorf("%w: address %q of transport %q", errMessage, a.Addr, a.Transport)
		}
	}
	return nil
}

// isHost reports whether an address can belong to a host. The kernel treats the
// unspecified address as loopback.
func isHost(a netip.Addr) bool {
	a = a.Unmap()
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast()
}
