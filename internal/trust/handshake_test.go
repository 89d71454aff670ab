package trust_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"gdrcp/internal/trust"
)

func newKey(t testing.TB, id string) trust.Key {
	t.Helper()
	k, err := trust.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// shake runs a handshake between two ends that may differ in key and prologue.
func shake(t testing.TB, client, server trust.Key, said, heard string) (c, s *trust.Session, err error) {
	t.Helper()
	o, first, err := trust.Open(client, []byte(said))
	if err != nil {
		t.Fatal(err)
	}
	id, answer, s, err := trust.Answer(first, []byte(heard), func(id string) (trust.Secret, bool) { return server.Secret, id == server.ID })
	if err != nil {
		return nil, nil, err
	}
	if id != client.ID || len(answer) != trust.AnswerBytes || len(first) > trust.MaxOpeningBytes {
		t.Fatalf("key %q, an answer of %d bytes to %d", id, len(answer), len(first))
	}
	c, err = o.Finish(answer)
	return c, s, err
}

func TestBothEndsHaveTheSameKeys(t *testing.T) {
	k := newKey(t, "training")
	c, s, err := shake(t, k, k, "hello", "hello")
	if err != nil {
		t.Fatal(err)
	}
	lane := trust.Lane{Rail: 1, QP: 2, Epoch: 3}
	if c.Token(lane) != s.Token(lane) || !s.Admits(lane, c.Token(lane)) {
		t.Error("the tokens differ")
	}
	for _, other := range []trust.Lane{{Rail: 2, QP: 2, Epoch: 3}, {Rail: 1, QP: 3, Epoch: 3}, {Rail: 1, QP: 2, Epoch: 4}, {Rail: 1, QP: 2, Epoch: 3 + 256}} {
		if s.Admits(other, c.Token(lane)) {
			t.Errorf("the token of %v admits %v", lane, other)
		}
	}
	again, _, err := shake(t, k, k, "hello", "hello")
	if err != nil {
		t.Fatal(err)
	}
	if s.Admits(lane, again.Token(lane)) {
		t.Error("a token of another session is admitted")
	}
}

func TestRefusedHandshakes(t *testing.T) {
	k, other := newKey(t, "a"), newKey(t, "a")
	for name, try := range map[string]func() error{
		"wrong secret":     func() error { _, _, err := shake(t, k, other, "x", "x"); return err },
		"unknown name":     func() error { _, _, err := shake(t, newKey(t, "b"), k, "x", "x"); return err },
		"another prologue": func() error { _, _, err := shake(t, k, k, "x", "y"); return err },
		"an answer without the key": func() error {
			o, _, err := trust.Open(k, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, first, err := trust.Open(other, nil)
			if err != nil {
				t.Fatal(err)
			}
			_, answer, _, err := trust.Answer(first, nil, func(string) (trust.Secret, bool) { return other.Secret, true })
			if err != nil {
				t.Fatal(err)
			}
			_, err = o.Finish(answer)
			return err
		},
	} {
		if err := try(); !errors.Is(err, trust.ErrRefused) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestEveryBitCounts flips every bit of both messages in turn.
func TestEveryBitCounts(t *testing.T) {
	k := newKey(t, "k")
	find := func(id string) (trust.Secret, bool) { return k.Secret, id == "k" }
	for bit := 0; ; bit++ {
		o, first, err := trust.Open(k, nil)
		if err != nil {
			t.Fatal(err)
		}
		if bit >= 8*(len(first)+trust.AnswerBytes) {
			return
		}
		inFirst := bit < 8*len(first)
		if inFirst {
			first[bit/8] ^= 1 << (bit % 8)
		}
		_, answer, s, err := trust.Answer(first, nil, find)
		if inFirst {
			// X25519 ignores one bit of an ephemeral key (RFC 7748, section 5),
			// but the transcript includes it.
			if err == nil {
				t.Fatalf("bit %d of the first message does not count", bit)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		at := bit - 8*len(first)
		answer[at/8] ^= 1 << (at % 8)
		c, err := o.Finish(answer)
		if err == nil {
			t.Fatalf("bit %d of the answer does not count: %v %v", at, c, s)
		}
	}
}

func TestSecretsDoNotShow(t *testing.T) {
	k := newKey(t, "k")
	shown := fmt.Sprintf("%v %+v %#v %s %x %q %d %v", k, k, k, k.Secret, k.Secret, k.Secret, k.Secret, &k)
	if b, err := json.Marshal(k); err == nil {
		shown += string(b)
	}
	if strings.Contains(shown, fmt.Sprintf("%x", k.Secret.Bytes())) || strings.Contains(shown, fmt.Sprint(k.Secret.Bytes()[0])+" "+fmt.Sprint(k.Secret.Bytes()[1])) {
		t.Error(shown)
	}
	if strings.Count(shown, "secret") < 8 {
		t.Error(shown)
	}
}

func TestNamesOfKeys(t *testing.T) {
	for id, good := range map[string]bool{"a": true, "A.b-c_9": true, strings.Repeat("x", 64): true, strings.Repeat("x", 65): false, "": false, "a b": false, "ä": false, "a/b": false, "a\n": false} {
		if err := trust.CheckID(id); (err == nil) != good {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func FuzzAnswer(f *testing.F) {
	k := newKey(f, "k")
	_, first, err := trust.Open(k, nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first)
	f.Add(first[:20])
	for n := range 256 {
		f.Add(append([]byte{byte(n)}, bytes.Repeat([]byte("k"), n+len(first)-2)...)) // as long as its length says
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		_, answer, s, err := trust.Answer(message, nil, func(id string) (trust.Secret, bool) { return k.Secret, id == "k" })
		if err == nil && !bytes.Equal(message, first) {
			t.Fatalf("%x was answered with %x, %v", message, answer, s)
		}
	})
}
