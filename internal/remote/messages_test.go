package remote

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"gdrcp/internal/trust"
)

func newKey(t testing.TB) trust.Key {
	t.Helper()
	k, err := trust.NewKey("test")
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// conversations returns both ends of a conversation.
func conversations(t *testing.T) (origin, far *Conversation) {
	t.Helper()
	a, b := net.Pipe()
	origin, far = converse(a), converse(b)
	t.Cleanup(func() {
		origin.Close()
		far.Close()
	})
	return origin, far
}

func TestServeAndOffer(t *testing.T) {
	origin, far := conversations(t)
	asked := &Serve{Key: newKey(t), Copy: Copy{Terms: []byte("\x00 of xfer")}, Sources: []string{"a*", "b\xff\x00"}, SessionBytes: 1 << 30}
	offer := &Offer{
		Home: "/home/me", NoRails: "none", NoTCP: "no cable", Expanded: [][]string{{"a1", "a2"}, {"b\xff\x00"}},
		Addresses: []Address{{"tcp", netip.MustParseAddrPort("192.0.2.1:1"), "eth0", 100}, {"verbs", netip.MustParseAddrPort("[2001:db8::1]:2"), "mlx5_0", 0}},
	}
	ended := make(chan error, 1)
	go func() {
		got, err := far.Asked()
		if err == nil && !reflect.DeepEqual(got.Serve, asked) {
			err = fmt.Errorf("asked for %+v, want %+v", got, asked)
		}
		ended <- errors.Join(err, far.Offer(offer))
	}()
	got, err := origin.AskServe(t.Context(), asked)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err != nil || !reflect.DeepEqual(got, offer) {
		t.Errorf("%+v, %v; want %+v", got, err, offer)
	}
}

// A far end is asked to serve one copy, and a request without one is refused.
func TestServeIsOfOneCopy(t *testing.T) {
	key := keyFields{"test", make([]byte, trust.SecretBytes)}
	push := &Serve{Copy: Copy{Push: true, Dest: "d\xff", From: []string{"a*", "b\xfe"}, Terms: []byte{1, 2}}}
	body, err := json.Marshal(serveFields{Key: key, Copy: push.Copy.fields()})
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeServe(body)
	if err != nil || !reflect.DeepEqual(got.Copy, push.Copy) {
		t.Errorf("%+v, %v; want %+v", got, err, push)
	}
	for name, f := range map[string]serveFields{
		"none, as version 1 has it": {Key: key, Sources: octets([]string{"a"})},
		"a push of sources there":   {Key: key, Sources: octets([]string{"a"}), Copy: &copyFields{Push: true, Dest: []byte("d")}},
		"a pull to a path there":    {Key: key, Copy: &copyFields{Dest: []byte("d")}},
		"a pull from a third host":  {Key: key, Copy: &copyFields{From: octets([]string{"a"})}},
	} {
		body, err := json.Marshal(f)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeServe(body); !errors.Is(err, errMessage) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func TestOffersThatAreRefused(t *testing.T) {
	addr := netip.MustParseAddrPort("192.0.2.1:1")
	good := func() *Offer {
		return &Offer{Home: "/h", Addresses: []Address{{"tcp", addr, "eth0", 1}}, Expanded: [][]string{{"a"}}}
	}
	for name, spoil := range map[string]func(*Offer){
		"another path":  func(o *Offer) { o.Expanded[0][0] = ".bashrc" },
		"no expansions": func(o *Offer) { o.Expanded = nil },
		"too many":      func(o *Offer) { o.Expanded = append(o.Expanded, []string{"b"}) },
		"no home":       func(o *Offer) { o.Home = "h" },
		"transport":     func(o *Offer) { o.Addresses[0].Transport = "ftp" },
		"port 0":        func(o *Offer) { o.Addresses[0].Addr = netip.AddrPortFrom(addr.Addr(), 0) },
		"a zone of controls": func(o *Offer) {
			o.Addresses[0].Addr = netip.AddrPortFrom(netip.MustParseAddr("2001:db8::5").WithZone("\x1bc"), 1)
		},
		"no address":         func(o *Offer) { o.Addresses[0].Addr = netip.AddrPort{} },
		"no host":            func(o *Offer) { o.Addresses[0].Addr = netip.MustParseAddrPort("[::ffff:0.0.0.0]:1") },
		"many hosts":         func(o *Offer) { o.Addresses[0].Addr = netip.MustParseAddrPort("224.0.0.1:1") },
		"rate":               func(o *Offer) { o.Addresses[0].RateGbps = -1 },
		"too many addresses": func(o *Offer) { o.Addresses = make([]Address, MaxAddresses+1) },
	} {
		origin, far := conversations(t)
		o := good()
		spoil(o)
		go func() {
			_, _ = far.Asked()
			_ = far.Offer(o)
		}()
		if got, err := origin.AskServe(t.Context(), &Serve{Key: newKey(t), Sources: []string{"a"}}); err == nil {
			t.Errorf("%s: %+v is taken", name, got)
		}
	}
}

func TestRefusal(t *testing.T) {
	origin, far := conversations(t)
	go func() {
		_, _ = far.Asked()
		_ = far.Refuse("no\x1b[31m such\nthing", 0)
	}()
	_, err := origin.AskServe(t.Context(), &Serve{Key: newKey(t)})
	var refused *RefusedError
	if !errors.As(err, &refused) || refused.Text != "no[31m suchthing" {
		t.Errorf("%v", err)
	}
}

// A far end that fails after its offer reports the reason, and Hear returns it.
func TestRefusalAfterTheOffer(t *testing.T) {
	origin, far := conversations(t)
	go func() { _ = far.Refuse("the device is gone", 0) }()
	var refused *RefusedError
	if err := origin.Hear(t.Context()); !errors.As(err, &refused) || refused.Text != "the device is gone" {
		t.Errorf("%v", err)
	}
}

// The answer to an outcome is validated, and a missing answer blocks nobody.
func TestOutcome(t *testing.T) {
	for _, c := range []struct {
		answer any
		code   int
		why    string
		bad    bool
	}{
		{answer: endFields{0, ""}},
		{answer: endFields{3, "no\x1b[31m\nroom"}, code: 3, why: "no[31mroom"},
		{answer: endFields{256, ""}, bad: true},
		{answer: endFields{-1, ""}, bad: true},
		{answer: []byte("x"), bad: true},
	} {
		origin, far := conversations(t)
		go func() { _ = far.Hear(t.Context()) }()
		go func() {
			<-far.OutcomeAsked()
			_ = far.send(kindOutcome, c.answer)
		}()
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() { cancel(origin.Hear(t.Context())) }()
		code, why, err := origin.AskOutcome(ctx)
		if code != c.code || why != c.why || errors.Is(err, errMessage) != c.bad {
			t.Errorf("%v became %d, %q, %v", c.answer, code, why, err)
		}
	}
}

// controlUnread returns an origin's stream for the set-up, which the far end
// does not read.
func controlUnread(t *testing.T) net.Conn {
	t.Helper()
	origin, far := muxPair(t)
	control, err := origin.Control(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := far.Control(t.Context()); err != nil {
		t.Fatal(err)
	}
	return control
}

// A far end that hangs before its offer does not block a caller whose context
// ends, even if it does not read the request.
func TestOfferThatDoesNotCome(t *testing.T) {
	for _, sourceBytes := range []int{1, 50_000, 2 * windowBytes} {
		c := converse(controlUnread(t))
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("interrupted")
		time.AfterFunc(time.Duration(sourceBytes)*time.Microsecond, func() { cancel(gone) })
		start := time.Now()
		if _, err := c.AskServe(ctx, &Serve{Key: newKey(t), Sources: []string{strings.Repeat("x", sourceBytes)}}); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		c.Close()
		if took := time.Since(start); took > stallTimeout/2 {
			t.Errorf("%d bytes: it took %s", sourceBytes, took)
		}
	}
}

// A far end that does not read a Run does not block a caller whose context ends either.
func TestRunThatIsNotRead(t *testing.T) {
	c := converseAt(controlUnread(t), time.Millisecond, silenceTimeout)
	ended := make(chan error, 1)
	go func() {
		_, err := c.AskRun(&Run{Key: newKey(t), Args: []string{strings.Repeat("x", 2*windowBytes)}}, nil, nil)
		ended <- err
	}()
	time.Sleep(100 * time.Millisecond) // by now the beat waits for it
	c.Close()
	if err := <-ended; err == nil {
		t.Error("it was taken for a copy")
	}
}

func TestRun(t *testing.T) {
	origin, far := conversations(t)
	asked := &Run{
		Key: newKey(t), Addresses: []Address{{"tcp", netip.MustParseAddrPort("192.0.2.1:1"), "eth0", 100}}, NoRails: "none", NoTCP: "no cable", From: "a", To: "b",
		Args: []string{"--recursive", "--exclude=\xff"}, Sources: []string{"a", "b\xfe"}, Dest: "c\xff", Terminal: true, Columns: 40,
	}
	long := bytes.Repeat([]byte("0123456789"), 3*outputBytes/10)
	ended := make(chan error, 1)
	go func() {
		got, err := far.Asked()
		if err == nil && !reflect.DeepEqual(got.Run, asked) {
			err = fmt.Errorf("asked for %+v, want %+v", got, asked)
		}
		_, outErr := far.Stdout().Write(long)
		_, errErr := far.Stderr().Write([]byte("told"))
		ended <- errors.Join(err, outErr, errErr, far.End(3))
	}()
	var stdout, stderr bytes.Buffer
	code, err := origin.AskRun(asked, &stdout, &stderr)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if err != nil || code != 3 || !bytes.Equal(stdout.Bytes(), long) || stderr.String() != "told" {
		t.Errorf("code %d, %v, %d bytes, %q", code, err, stdout.Len(), &stderr)
	}
}

// TestSilence: an end that sends beats is alive, although it sends nothing
// else; one that does not times out.
func TestSilence(t *testing.T) { synctest.Test(t, testSilence) }

func testSilence(t *testing.T) {
	a, b := net.Pipe()
	origin, far := converseAt(a, time.Millisecond, time.Minute), converseAt(b, time.Hour, 200*time.Millisecond)
	defer origin.Close()
	defer far.Close()
	heard := make(chan error, 1)
	go func() { heard <- far.Hear(t.Context()) }()
	select {
	case err := <-heard:
		t.Fatalf("an end that beats: %v", err)
	case <-time.After(600 * time.Millisecond):
	}
	close(origin.stop) // no more beats, but the pipe is open
	origin.once.Do(func() {})
	if err := <-heard; !errors.Is(err, ErrPipe) || !strings.Contains(err.Error(), "nothing was heard") {
		t.Errorf("an end that is silent: %v", err)
	}
	if !far.gaveUp.Load() || origin.gaveUp.Load() {
		t.Error("the silent end is not the one that was given up")
	}
}

// TestSecretIsNotPrinted: neither the types that carry a key nor errors print it.
func TestSecretIsNotPrinted(t *testing.T) {
	k := newKey(t)
	if text := fmt.Sprintf("%v %+v %#v", Serve{Key: k}, &Run{Key: k}, k); strings.Contains(text, string(k.Secret.Bytes())) {
		t.Error("a secret shows")
	}
	origin, far := conversations(t)
	go far.Close()
	_, err := origin.AskServe(t.Context(), &Serve{Key: k})
	if !errors.Is(err, ErrPipe) && err == nil {
		t.Errorf("a pipe that ended: %v", err)
	}
}

func FuzzMessages(f *testing.F) {
	for _, fields := range []any{
		serveFields{Key: keyFields{"a", make([]byte, trust.SecretBytes)}, Copy: &copyFields{Terms: []byte{1}}, Sources: octets([]string{"x"})},
		runFields{Key: keyFields{"a", make([]byte, trust.SecretBytes)}, Addresses: []Address{{"tcp", netip.MustParseAddrPort("192.0.2.1:1"), "e", 1}}},
		offerFields{Home: []byte("/h"), Expanded: [][][]byte{octets([]string{"a"})}},
		refusalFields{Text: "no"},
	} {
		for _, k := range []kind{kindServe, kindRun, kindOffer} {
			var b bytes.Buffer
			if err := writeMessage(&b, k, fields); err != nil {
				f.Fatal(err)
			}
			f.Add(b.Bytes())
		}
	}
	f.Add(binary.LittleEndian.AppendUint32([]byte{1}, 1<<31))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, body, err := readMessage(bytes.NewReader(b))
		if err != nil {
			return
		}
		switch k {
		case kindServe:
			if s, err := decodeServe(body); err == nil && trust.CheckID(s.Key.ID) != nil {
				t.Fatalf("%q", s.Key.ID)
			}
		case kindRun:
			if r, err := decodeRun(body); err == nil && checkAddresses(r.Addresses) != nil {
				t.Fatalf("%+v", r.Addresses)
			}
		case kindOffer:
			o, err := decodeOffer(body)
			if err != nil {
				return
			}
			if len(o.Addresses) > MaxAddresses || len(o.Home) == 0 || o.Home[0] != '/' {
				t.Fatalf("%+v", o)
			}
		}
	})
}
