package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"
)

// Audit is a request to a far end to read files and report their contents. Such
// a far end is no server; its reports are sent only over the conversation.
type Audit struct {
	// Path is the path to read there, as the user wrote it. It is not a pattern.
	Path string
	// Verify: the files are compared with a manifest, which is the input.
	// Otherwise a manifest is made of them, with Hash, in pieces of PieceBytes.
	Verify     bool
	Hash       string
	PieceBytes int64
	// Follow reads the targets of links, and Preserve also compares modes and times.
	Follow, Preserve bool
	// Rules are filter rules, each in the form of --filter.
	Rules []string
	// Listed: only the entries named in the input are read, with Recursive also the
	// contents of directories among them. In the input each name ends in a NUL.
	Listed, Recursive bool
}

// Finding is a far end's report about a path.
type Finding struct {
	Kind string `json:"kind"`
	Path []byte `json:"path"`
	// Differs is the set of the fields that differ, and Ranges are the bytes
	// that differ, each from its first byte up to but not including its end.
	Differs uint8      `json:"differs,omitempty"`
	Ranges  [][2]int64 `json:"ranges,omitempty"`
	Text    []byte     `json:"text"` // for people
}

// Tally is a far end's progress in reading.
type Tally struct {
	Bytes      int64 `json:"bytes"`
	Files      int64 `json:"files"`
	TotalBytes int64 `json:"total_bytes"`
	TotalKnown bool  `json:"total_known"`
}

// Audited is the result of an audit: how many entries are correct, and how many
// of the manifest's were excluded.
type Audited struct {
	Files   int64 `json:"files"`
	Dirs    int64 `json:"dirs"`
	Links   int64 `json:"links"`
	Bytes   int64 `json:"bytes"`
	LeftOut int64 `json:"left_out"`
}

type auditFields struct {
	Path       []byte   `json:"path"`
	Verify     bool     `json:"verify,omitempty"`
	Hash       string   `json:"hash,omitempty"`
	PieceBytes int64    `json:"piece_bytes,omitempty"`
	Follow     bool     `json:"follow,omitempty"`
	Preserve   bool     `json:"preserve,omitempty"`
	Rules      [][]byte `json:"rules,omitempty"`
	Listed     bool     `json:"listed,omitempty"`
	Recursive  bool     `json:"recursive,omitempty"`
}

func decodeAudit(body []byte) (*Audit, error) {
	var f auditFields
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	if len(f.Path) == 0 || f.Verify && f.Listed {
		return nil, fmt.Errorf("%w: it does not name what to read", errMessage)
	}
	return &Audit{string(f.Path), f.Verify, f.Hash, f.PieceBytes, f.Follow, f.Preserve, texts(f.Rules), f.Listed, f.Recursive}, nil
}

// maxRanges bounds the ranges of one Finding.
const maxRanges = 4096

func decodeFinding(body []byte) (*Finding, error) {
	var f Finding
	if err := decode(body, &f); err != nil {
		return nil, err
	}
	if len(f.Ranges) > maxRanges {
		return nil, fmt.Errorf("%w: %d ranges", errMessage, len(f.Ranges))
	}
	end := int64(0)
	for i, r := range f.Ranges {
		if r[0] < end || r[0] >= r[1] || i > 0 && r[0] == end {
			return nil, fmt.Errorf("%w: a range from %d up to %d after one that ends at %d", errMessage, r[0], r[1], end)
		}
		end = r[1]
	}
	return &f, nil
}

func decodeTally(body []byte) (t Tally, err error) {
	if err = decode(body, &t); err == nil && min(t.Bytes, t.Files, t.TotalBytes) < 0 {
		err = fmt.Errorf("%w: a negative count of what was read", errMessage)
	}
	return t, err
}

func decodeAudited(body []byte) (*Audited, error) {
	var d Audited
	err := decode(body, &d)
	if err == nil && min(d.Files, d.Dirs, d.Links, d.Bytes, d.LeftOut) < 0 {
		err = fmt.Errorf("%w: a negative count of an audit", errMessage)
	}
	return &d, err
}

// InputError is an error of the function that writes an audit's input.
type InputError struct{ Err error }

func (e *InputError) Error() string { return e.Err.Error() }
func (e *InputError) Unwrap() error { return e.Err }

// AuditListener receives a far end's reports while it reads, in order. Its
// functions are called by the goroutine that calls AskAudit.
type AuditListener struct {
	Manifest io.Writer // for an audit that makes one
	Finding  func(*Finding) error
	Tally    func(Tally)
}

// AskAudit makes the far end read files, and returns its last report. There is no timeout;
// the end of ctx, or of the Mux, ends it. Meanwhile input, which may be nil, writes the
// input of the audit; its own error is returned as an *InputError. If the far end reports
// that it is done before it has received all input, AskAudit returns an error. Afterwards
// the conversation is over. If it ended early, input may still be waiting for its own
// source, and AskAudit does not wait for it.
func (c *Conversation) AskAudit(ctx context.Context, a *Audit, input func(io.Writer) error, l AuditListener) (*Audited, error) {
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	done, err := c.askAudit(a, input, &l)
	if err == nil {
		return done, nil
	}
	c.conn.Close() // this ends the input, too
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	return nil, err
}

func (c *Conversation) askAudit(a *Audit, input func(io.Writer) error, l *AuditListener) (*Audited, error) {
	err := c.send(kindAudit, auditFields{[]byte(a.Path), a.Verify, a.Hash, a.PieceBytes, a.Follow, a.Preserve, octets(a.Rules), a.Listed, a.Recursive})
	if err != nil {
		return nil, err
	}
	fed := make(chan error, 1)
	go c.feed(input, fed)
	done, err := c.hearAudit(l)
	if err != nil {
		select {
		case wrong := <-fed: // the error of receiving is only a consequence of it
			if own := (*InputError)(nil); errors.As(wrong, &own) {
				return nil, own
			}
		default:
		}
		return nil, err
	}
	select {
	case wrong := <-fed:
		return done, wrong
	case <-time.After(stallTimeout): // after the last input, before feed's result
		return nil, fmt.Errorf("%w: it ended before it had all of the input", errMessage)
	}
}

// feed sends the input, followed by a message that it has ended. If that fails,
// the conversation is over.
func (c *Conversation) feed(input func(io.Writer) error, fed chan<- error) {
	out := &fedInput{printed{c, kindInput}, nil}
	err := error(nil)
	if input != nil {
		err = input(out)
	}
	switch {
	case out.lost != nil:
		err = out.lost
	case err != nil:
		err = &InputError{err}
	default:
		err = c.send(kindInput, nil)
	}
	fed <- err
	if err != nil {
		c.conn.Close()
	}
}

// fedInput distinguishes errors of the conversation from those of the function
// that writes the input.
type fedInput struct {
	out  printed
	lost error
}

func (f *fedInput) Write(b []byte) (int, error) {
	if len(b) == 0 { // an empty part means the end
		return 0, nil
	}
	n, err := f.out.Write(b)
	if err != nil {
		f.lost = err
	}
	return n, err
}

// hearAudit passes on a far end's reports until it is done.
func (c *Conversation) hearAudit(l *AuditListener) (*Audited, error) {
	for {
		k, body, err := c.receive()
		if err != nil {
			return nil, err
		}
		switch {
		case k == kindManifest && l.Manifest != nil:
			_, err = l.Manifest.Write(body)
		case k == kindFinding:
			var f *Finding
			if f, err = decodeFinding(body); err == nil {
				err = l.Finding(f)
			}
		case k == kindTally:
			var t Tally
			if t, err = decodeTally(body); err == nil {
				l.Tally(t)
			}
		case k == kindAudited:
			return decodeAudited(body)
		case k == kindRefusal:
			err = refusal(body)
		default:
			err = fmt.Errorf("%w: kind %d during an audit", errMessage, k)
		}
		if err != nil {
			return nil, err
		}
	}
}

// Manifest returns a writer for the manifest that the far end makes.
func (c *Conversation) Manifest() io.Writer { return &printed{c, kindManifest} }

// Found reports a Finding.
func (c *Conversation) Found(f *Finding) error { return c.send(kindFinding, f) }

// HasRead reports this far end's progress.
func (c *Conversation) HasRead(t Tally) error { return c.send(kindTally, t) }

// HasAudited sends the final report of an audit.
func (c *Conversation) HasAudited(d *Audited) error { return c.send(kindAudited, d) }
