package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// beatInterval is how often each end sends a beat, and silenceTimeout is how long the
	// peer may be silent. On a slow link seconds of data may be queued ahead of a beat;
	// ssh itself may not notice for hours that a network is down.
	beatInterval   = 10 * time.Second
	silenceTimeout = 90 * time.Second
	// outputBytes bounds the output in one message.
	outputBytes = 32 << 10
	// offerTimeout is how long a far end may take for its offer: it expands patterns in
	// file systems that may be slow, or hang.
	offerTimeout = 2 * time.Minute
)

// Conversation is the set-up over the first stream of a Mux. One goroutine
// reads; any goroutine may write.
type Conversation struct {
	conn    net.Conn
	silence time.Duration // how long the peer may be silent
	gaveUp  atomic.Bool   // the peer was silent for too long
	writing sync.Mutex
	beats   sync.WaitGroup
	stop    chan struct{}
	once    sync.Once
	// asked and answered pass outcome messages on from HearInput.
	asked    chan struct{}
	answered chan endFields
}

// converse starts a conversation, which takes ownership of the stream.
func converse(conn net.Conn) *Conversation { return converseAt(conn, beatInterval, silenceTimeout) }

func converseAt(conn net.Conn, beatEvery, silence time.Duration) *Conversation {
	c := &Conversation{conn: conn, silence: silence, stop: make(chan struct{}), asked: make(chan struct{}, 1), answered: make(chan endFields, 1)}
	c.beats.Go(func() { c.beat(beatEvery) })
	return c
}

func (c *Conversation) beat(every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			// Ignore an error: the pipe may only be blocked, and if it has
			// ended, the reader notices.
			_ = c.send(kindBeat, nil)
		case <-c.stop:
			return
		}
	}
}

// closeTime is how long a message in progress may still take when the
// conversation is closed.
const closeTime = time.Second

// Close ends the conversation. The peer can still read all messages that were
// sent. A message that it does not read fails after closeTime.
func (c *Conversation) Close() error {
	c.once.Do(func() { close(c.stop) })
	// The beat may be waiting for a message, which may wait for ever.
	_ = c.conn.SetWriteDeadline(time.Now().Add(closeTime))
	c.beats.Wait()
	return c.conn.Close()
}

func (c *Conversation) send(k kind, fields any) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	return writeMessage(c.conn, k, fields)
}

// receive returns the next message that is not a beat.
func (c *Conversation) receive() (kind, []byte, error) {
	for {
		if err := c.conn.SetReadDeadline(time.Now().Add(c.silence)); err != nil {
			return 0, nil, err
		}
		k, body, err := readMessage(c.conn)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			c.gaveUp.Store(true)
			return 0, nil, fmt.Errorf("%w: nothing was heard for %s", ErrPipe, c.silence)
		case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
			return 0, nil, ErrPipe
		case err != nil:
			return 0, nil, err
		case k != kindBeat:
			return k, body, nil
		}
	}
}

// RefusedError is the error of a far end that cannot do what it was asked to
// do, with its text.
type RefusedError struct {
	Text string
	// Class is the class of its error, in package xfer's numbers; 0: unknown.
	Class uint8
}

func (e *RefusedError) Error() string { return e.Text }

// expect returns the next message, which must be of the kind want, or a refusal.
func (c *Conversation) expect(want kind) ([]byte, error) {
	k, body, err := c.receive()
	switch {
	case err != nil:
		return nil, err
	case k == want:
		return body, nil
	case k == kindRefusal:
		return nil, refusal(body)
	}
	return nil, fmt.Errorf("%w: kind %d, not %d", errMessage, k, want)
}

// refusal returns the error in a refusal's body.
func refusal(body []byte) error {
	var f refusalFields
	if err := decode(body, &f); err != nil {
		return err
	}
	return &RefusedError{oneLine(f.Text, maxLineBytes), f.Class}
}

// AskServe makes the far end serve, and returns its offer. It checks the offer,
// and the expansions against the sources. When ctx ends, or after two minutes,
// the conversation is over.
func (c *Conversation) AskServe(ctx context.Context, s *Serve) (*Offer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, offerTimeout, fmt.Errorf("gdrcp there did not tell within %s where it can be reached", offerTimeout))
	defer cancel()
	o, err := c.askServe(ctx, s)
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return nil, cause
	}
	return o, err
}

func (c *Conversation) askServe(ctx context.Context, s *Serve) (*Offer, error) {
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	if err := c.send(kindServe, serveFields{fieldsOf(s.Key), s.Copy.fields(), octets(s.Sources), s.SessionBytes}); err != nil {
		return nil, err
	}
	body, err := c.expect(kindOffer)
	if err != nil {
		return nil, err
	}
	o, err := decodeOffer(body)
	if err != nil {
		return nil, err
	}
	if len(o.Expanded) != len(s.Sources) {
		return nil, fmt.Errorf("%w: %d expansions of %d paths", errMessage, len(o.Expanded), len(s.Sources))
	}
	for i, names := range o.Expanded {
		if err := Believe(s.Sources[i], names); err != nil {
			return nil, err
		}
	}
	return o, nil
}

// AskRun makes the far end copy, and writes the far end's output, until the
// copy has ended. There is no timeout; the end of the Mux ends it.
func (c *Conversation) AskRun(r *Run, stdout, stderr io.Writer) (exitCode int, err error) {
	err = c.send(kindRun, runFields{fieldsOf(r.Key), r.Addresses, r.NoRails, r.NoTCP, r.Machine, r.From, r.To, octets(r.Args), octets(r.Sources), []byte(r.Dest), r.Terminal, uint16(r.Columns)})
	for err == nil {
		var k kind
		var body []byte
		if k, body, err = c.receive(); err != nil {
			break
		}
		switch k {
		case kindStdout:
			_, err = stdout.Write(body)
		case kindStderr:
			_, err = stderr.Write(body)
		case kindEnd:
			f, err := decodeEnd(body)
			return f.Code, err
		default:
			err = fmt.Errorf("%w: kind %d during a copy", errMessage, k)
		}
	}
	return 0, err
}

// Wish is a request of the origin: exactly one of the fields is set.
type Wish struct {
	Serve *Serve
	Run   *Run
	Audit *Audit
}

// Asked returns the origin's request.
func (c *Conversation) Asked() (w Wish, err error) {
	k, body, err := c.receive()
	switch {
	case err != nil:
	case k == kindServe:
		w.Serve, err = decodeServe(body)
	case k == kindRun:
		w.Run, err = decodeRun(body)
	case k == kindAudit:
		w.Audit, err = decodeAudit(body)
	default:
		err = fmt.Errorf("%w: kind %d before any request", errMessage, k)
	}
	return w, err
}

// Offer answers Serve.
func (c *Conversation) Offer(o *Offer) error {
	f := offerFields{Home: []byte(o.Home), Addresses: o.Addresses, NoRails: o.NoRails, NoTCP: o.NoTCP, Machine: o.Machine}
	for _, names := range o.Expanded {
		f.Expanded = append(f.Expanded, octets(names))
	}
	return c.send(kindOffer, f)
}

// Refuse answers a Wish. It may also be used after an offer or during an audit.
// class is that of the error, see RefusedError.
func (c *Conversation) Refuse(why string, class uint8) error {
	return c.send(kindRefusal, refusalFields{why, class})
}

// End reports how a Run ended.
func (c *Conversation) End(exitCode int) error { return c.send(kindEnd, endFields{Code: exitCode}) }

// Stdout and Stderr return writers for the output of a Run.
func (c *Conversation) Stdout() io.Writer { return &printed{c, kindStdout} }

// Stderr is like Stdout.
func (c *Conversation) Stderr() io.Writer { return &printed{c, kindStderr} }

// printed is a writer to the origin.
type printed struct {
	to   *Conversation
	kind kind
}

func (p *printed) Write(b []byte) (int, error) {
	for sent := 0; ; {
		part := b[sent:min(len(b), sent+outputBytes)]
		if err := p.to.send(p.kind, part); err != nil {
			return sent, err
		}
		if sent += len(part); sent == len(b) {
			return sent, nil
		}
	}
}

// AskOutcome asks a serving far end how its copy ended, and returns the exit
// code and, unless that is 0, the reason. It waits while the copy runs. Another
// goroutine must be in Hear.
func (c *Conversation) AskOutcome(ctx context.Context) (exitCode int, why string, err error) {
	if err := c.send(kindOutcome, nil); err != nil {
		return 0, "", err
	}
	select {
	case f := <-c.answered:
		return f.Code, oneLine(f.Text, maxLineBytes), nil
	case <-ctx.Done():
		return 0, "", context.Cause(ctx)
	}
}

// OutcomeAsked receives a value when the origin has called AskOutcome, if a
// goroutine is in HearInput. Reply with Outcome.
func (c *Conversation) OutcomeAsked() <-chan struct{} { return c.asked }

// Outcome reports how the copy ended.
func (c *Conversation) Outcome(exitCode int, why string) error {
	return c.send(kindOutcome, endFields{exitCode, why})
}

// hearOutcome handles a question, whose body is empty, or an answer. Only one
// of either is kept.
func (c *Conversation) hearOutcome(body []byte) error {
	if len(body) == 0 {
		select {
		case c.asked <- struct{}{}:
		default:
		}
		return nil
	}
	f, err := decodeEnd(body)
	if err == nil {
		select {
		case c.answered <- f:
		default:
		}
	}
	return err
}

// Hear waits until the peer ends the conversation, or ctx ends. It ignores all messages
// except an outcome, and a refusal, which it returns as a RefusedError.
func (c *Conversation) Hear(ctx context.Context) error {
	nobody, input := io.Pipe()
	nobody.Close()
	return c.HearInput(ctx, input)
}

// HearInput is Hear that also passes on the input of an audit while it is being read.
func (c *Conversation) HearInput(ctx context.Context, input *io.PipeWriter) error {
	defer context.AfterFunc(ctx, func() { c.conn.Close() })()
	for {
		k, body, err := c.receive()
		switch {
		case err != nil:
		case k == kindRefusal:
			err = refusal(body)
		case k == kindInput && len(body) == 0:
			err = input.Close()
		case k == kindInput:
			_, _ = input.Write(body) // fails if nobody reads it any more
		case k == kindOutcome:
			err = c.hearOutcome(body)
		}
		if err != nil {
			input.CloseWithError(err)
			return err
		}
	}
}
