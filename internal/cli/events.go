package cli

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"gdrcp/internal/audit"
	"gdrcp/internal/printable"
	"gdrcp/manifest"
	"gdrcp/rdma"
	"gdrcp/xfer"
)

// events writes one JSON object per line for --json. Each has a field "event".
// docs/json-events.md documents all events and fields; later versions may add some.
type events struct {
	mu  sync.Mutex
	out *json.Encoder
}

func newEvents(w io.Writer) *events {
	e := &events{out: json.NewEncoder(&jsonWriter{w})}
	e.out.SetEscapeHTML(false)
	return e
}

// jsonWriter escapes unprintable characters in JSON texts, so that a terminal neither
// interprets nor reorders the characters of a name. A parser sees the same text.
type jsonWriter struct{ w io.Writer }

// Write implements io.Writer. Each call must contain whole texts.
func (j *jsonWriter) Write(text []byte) (int, error) {
	var out []byte
	done := 0
	for i, r := range string(text) {
		if r == '\n' || unicode.IsPrint(r) {
			continue
		}
		out = append(out, text[done:i]...)
		for _, unit := range utf16.Encode([]rune{r}) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
		done = i + utf8.RuneLen(r)
	}
	if _, err := j.w.Write(append(out, text[done:]...)); err != nil {
		return 0, err
	}
	return len(text), nil
}

// emit writes an event. output keeps write errors.
func (e *events) emit(event any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	_ = e.out.Encode(event)
}

// emitError writes the event of a failure.
func (e *events) emitError(err error, interrupted bool) {
	f := explain(err, interrupted)
	event := errorEvent{Event: "error", Text: f.text, Hint: f.hint, ExitCode: f.code}
	var probe *rdma.ProbeError
	if errors.As(err, &probe) {
		event.Reason = probe.Reason.String()
	}
	e.emit(event)
}

type linkFields struct {
	Transport  string `json:"transport"`
	Device     string `json:"device"`
	Family     string `json:"family"`
	Imm        string `json:"imm"`
	LocalAddr  string `json:"local"`
	RemoteAddr string `json:"remote"`
	QPs        int    `json:"qps"`
	Slots      int    `json:"slots"`
	ChunkBytes int    `json:"chunk_bytes"`
	Encrypted  bool   `json:"encrypted"`
	Why        string `json:"why,omitempty"`
}

func fieldsOf(l *xfer.Link) linkFields {
	return linkFields{
		Transport: l.Transport, Device: l.Device, Family: string(l.Family), Imm: l.Imm.String(), LocalAddr: l.Local, RemoteAddr: l.Remote,
		QPs: l.QPs, Slots: l.Slots, ChunkBytes: l.ChunkBytes, Encrypted: l.Encrypted, Why: l.Why,
	}
}

type connectedEvent struct {
	Event string `json:"event"`
	linkFields
}

type waitingEvent struct {
	Event string `json:"event"`
	Text  string `json:"text"`
}

type retryEvent struct {
	Event   string  `json:"event"`
	Text    string  `json:"text"`
	Retry   int     `json:"retry"`
	Retries int     `json:"retries"`
	Seconds float64 `json:"seconds"`
}

type warningEvent struct {
	Event string `json:"event"`
	Text  string `json:"text"`
	End   string `json:"end"` // "local" or "remote"
}

type afreshEvent struct {
	Event string `json:"event"`
	End   string `json:"end"` // "local" or "remote"
}

type fileEvent struct {
	Event   string `json:"event"`
	Path    string `json:"path"`
	Outcome string `json:"outcome"`
	Bytes   int64  `json:"bytes,omitempty"`
	Text    string `json:"text,omitempty"`
	End     string `json:"end,omitempty"`
	DryRun  bool   `json:"dry_run,omitempty"`
}

type progressEvent struct {
	Event          string   `json:"event"`
	Bytes          int64    `json:"bytes"`
	Files          int64    `json:"files"`
	TotalBytes     int64    `json:"total_bytes"`
	TotalKnown     bool     `json:"total_known"`
	Seconds        float64  `json:"seconds"`
	BytesPerSecond float64  `json:"bytes_per_second"`
	SecondsLeft    *float64 `json:"seconds_left,omitempty"`
}

func progressEventOf(r *reading) progressEvent {
	e := progressEvent{"progress", r.Bytes, r.Files, r.TotalBytes, r.TotalKnown, r.elapsed.Seconds(), r.bytesPerSecond, nil}
	if left, ok := r.left(); ok {
		seconds := left.Seconds()
		e.SecondsLeft = &seconds
	}
	return e
}

type deletedEvent struct {
	Event  string `json:"event"`
	Path   string `json:"path"`
	Text   string `json:"text,omitempty"`
	DryRun bool   `json:"dry_run,omitempty"`
}

func deletedEventOf(e *xfer.Event) deletedEvent {
	kind := "deleted"
	if e.Text != "" {
		kind = "not_deleted"
	}
	return deletedEvent{kind, deletedPath(e), printable.Text(e.Text), e.DryRun}
}

type errorEvent struct {
	Event    string `json:"event"`
	Text     string `json:"text"`
	Hint     string `json:"hint,omitempty"`
	ExitCode int    `json:"exit_code"`
	Reason   string `json:"reason,omitempty"`
}

type summaryEvent struct {
	Event          string  `json:"event"`
	Files          int64   `json:"files"`
	Dirs           int64   `json:"dirs"`
	Links          int64   `json:"links"`
	Bytes          int64   `json:"bytes"`
	Seconds        float64 `json:"seconds"`
	BytesPerSecond float64 `json:"bytes_per_second"`
	WireBytes      int64   `json:"wire_bytes"`
	Repairs        int64   `json:"repairs"`
	Hash           string  `json:"hash"`
	PieceBytes     int64   `json:"piece_bytes"`
	Root           string  `json:"root"`
	MetaRoot       string  `json:"meta_root"`
	Verified       bool    `json:"verified"`
	FirstByteMs    float64 `json:"first_byte_ms"`
	Skipped        int64   `json:"skipped"`
	Failed         int64   `json:"failed"`
	Changed        int64   `json:"changed"`
	Corrupt        int64   `json:"corrupt"`
	Missing        int64   `json:"missing"`
	Kept           int64   `json:"kept"`
	LeftOut        int64   `json:"left_out"`
	Unchanged      int64   `json:"unchanged"`
	Trusted        int64   `json:"trusted,omitempty"`
	TrustedBytes   int64   `json:"trusted_bytes,omitempty"`
	SentBytes      int64   `json:"sent_bytes"`
	ComparedBytes  int64   `json:"compared_bytes"`
	SameBytes      int64   `json:"same_bytes"`
	SkippedBytes   int64   `json:"skipped_bytes"`
	ResumedBytes   int64   `json:"resumed_bytes"`
	Grown          int64   `json:"grown"`
	Retries        int     `json:"retries"`
	Deleted        int64   `json:"deleted"`
	DeletedAtLeast bool    `json:"deleted_at_least,omitempty"`
	NotDeleted     bool    `json:"not_deleted,omitempty"`
	Withheld       bool    `json:"withheld,omitempty"`
	DryRun         bool    `json:"dry_run,omitempty"`
	// Unkept lists attributes that copied entries lack.
	Unkept []unkeptField `json:"unkept,omitempty"`
	// Rails reports how much each rail carried.
	Rails []xfer.RailUse `json:"rails,omitempty"`
	// NUMANode is the node of the local slots, if it matters. If there are several
	// nodes, it is the first.
	NUMANode  *int  `json:"numa_node,omitempty"`
	NUMANodes []int `json:"numa_nodes,omitempty"`
	// Local and Remote say what memory each end had its slots in.
	Local  xfer.Memory `json:"local_slots"`
	Remote xfer.Memory `json:"remote_slots"`
	// LocalCost and RemoteCost are what the copy cost each end.
	LocalCost  *costField `json:"local_cost,omitempty"`
	RemoteCost *costField `json:"remote_cost,omitempty"`
	// Read and Written say how the source read files and how the destination wrote them.
	Read    xfer.DiskIO `json:"read_io"`
	Written xfer.DiskIO `json:"write_io"`
	linkFields
}

func eventOf(s *xfer.Summary) summaryEvent {
	local, remote := costFields(s)
	var node *int
	if len(s.NUMANodes) > 0 {
		node = &s.NUMANodes[0]
	}
	return summaryEvent{
		Event: "summary", Files: s.Files, Dirs: s.Dirs, Links: s.Links, Bytes: s.Bytes, Seconds: s.Seconds, BytesPerSecond: rateOf(s.Bytes-s.ResumedBytes, s.Seconds),
		WireBytes: s.WireBytes, Repairs: s.Repairs, Hash: s.Hash.String(), PieceBytes: s.PieceBytes, Root: hex.EncodeToString(s.Content[:]),
		MetaRoot: hex.EncodeToString(s.Meta[:]), Verified: s.Verified, FirstByteMs: float64(s.FirstByte.Microseconds()) / 1e3, Skipped: s.Skipped,
		Failed: s.Failed, Changed: s.Changed, Corrupt: s.Corrupt, Missing: s.Missing, Kept: s.Kept, LeftOut: s.LeftOut, Unchanged: s.Unchanged,
		Trusted: s.Trusted, TrustedBytes: s.TrustedBytes, SentBytes: s.SentBytes, ComparedBytes: s.ComparedBytes, SameBytes: s.SameBytes, SkippedBytes: s.SkippedBytes, ResumedBytes: s.ResumedBytes, Grown: s.Grown, Retries: s.Retries, Deleted: s.Deleted,
		DeletedAtLeast: s.DeletedAtLeast, NotDeleted: s.NotDeleted, Withheld: s.Withheld, DryRun: s.DryRun, Unkept: unkeptFields(s), Rails: s.Rails, NUMANode: node, NUMANodes: s.NUMANodes, Local: s.Local, Remote: s.Remote, Read: s.Read, Written: s.Written, LocalCost: local, RemoteCost: remote, linkFields: fieldsOf(&s.Link),
	}
}

// unkeptField is an attribute that entries lack at the destination.
type unkeptField struct {
	Attribute string `json:"attribute"`
	Dir       string `json:"dir"`
	Entries   int64  `json:"entries"`
	AtLeast   bool   `json:"at_least,omitempty"` // of Entries
	First     string `json:"first"`
	Reason    string `json:"reason"`
}

func unkeptFields(s *xfer.Summary) (fields []unkeptField) {
	for _, u := range s.Unkept {
		fields = append(fields, unkeptField{printable.Text(u.Attribute), u.Dir, u.Entries, u.AtLeast, u.First, printable.Text(u.Reason)})
	}
	return fields
}

// rateOf returns bytes per second, or 0 if no time has passed.
func rateOf(bytes int64, seconds float64) float64 {
	if seconds <= 0 {
		return 0
	}
	return float64(bytes) / seconds
}

// outcomeOf returns the outcome of an entry in one word.
func outcomeOf(e *xfer.Event) string {
	if e.Trusted {
		return "trusted"
	}
	if e.Unchanged {
		return "unchanged"
	}
	if e.LeftOut {
		return "left_out"
	}
	return outcomeText(e.Outcome)
}

func outcomeText(o xfer.Outcome) string {
	switch o {
	case xfer.Copied:
		return "copied"
	case xfer.Skipped:
		return "skipped"
	case xfer.Changed:
		return "changed"
	case xfer.Corrupt:
		return "corrupt"
	case xfer.Kept:
		return "kept"
	}
	return "failed"
}

type differenceEvent struct {
	Event   string       `json:"event"`
	Path    string       `json:"path"`
	Kind    string       `json:"kind"`
	Differs string       `json:"differs,omitempty"`
	Ranges  []rangeField `json:"ranges,omitempty"`
	Text    string       `json:"text,omitempty"`
}

// rangeField is the bytes from Offset up to but not including End.
type rangeField struct {
	Offset int64 `json:"offset"`
	End    int64 `json:"end"`
}

func rangeFields(ranges []manifest.ByteRange) []rangeField {
	var out []rangeField
	for _, r := range ranges {
		out = append(out, rangeField(r))
	}
	return out
}

type comparedEvent struct {
	Event       string `json:"event"`
	Identical   bool   `json:"identical"`
	Differences int64  `json:"differences"`
}

type auditEvent struct {
	Event      string `json:"event"`
	Files      int64  `json:"files"`
	Dirs       int64  `json:"dirs"`
	Links      int64  `json:"links"`
	Bytes      int64  `json:"bytes"`
	Hash       string `json:"hash"`
	PieceBytes int64  `json:"piece_bytes"`
	Root       string `json:"root"`
	MetaRoot   string `json:"meta_root"`
	Bad        int64  `json:"bad"`
	Missing    int64  `json:"missing"`
	Extra      int64  `json:"extra"`
	Unreadable int64  `json:"unreadable"`
	Skipped    int64  `json:"skipped"`
	LeftOut    int64  `json:"left_out"`
}

func auditEventOf(event string, s *audit.Summary) auditEvent {
	return auditEvent{
		Event: event, Files: s.Files, Dirs: s.Dirs, Links: s.Links, Bytes: s.Bytes, Hash: s.Algorithm.String(), PieceBytes: s.PieceBytes,
		Root: hex.EncodeToString(s.Content[:]), MetaRoot: hex.EncodeToString(s.Meta[:]),
		Bad: s.Bad, Missing: s.Missing, Extra: s.Extra, Unreadable: s.Unreadable, Skipped: s.Skipped, LeftOut: s.LeftOut,
	}
}
