package door

import (
	"context"
	"errors"
	"testing"
)

// If a key starts to require encryption, its unencrypted sessions end and the
// encrypted ones continue, whether or not their hello has arrived.
func TestEncryptionThatIsRequiredLater(t *testing.T) {
	t.Parallel()
	k := keysOf(firstKey, secondKey)
	q := queueOf(Config{Keys: k})
	const sealed, plain = true, false
	heard := func(n byte, encrypted bool) *Session {
		t.Helper()
		host := request(q, firstKey, n, 1).admitted(t, 1)
		if err := host.CheckEncryption(encrypted); err != nil {
			t.Fatal(err)
		}
		return host
	}
	with, without := heard(1, sealed), heard(2, plain)
	early := []*Session{request(q, firstKey, 3, 1).admitted(t, 1), request(q, firstKey, 4, 1).admitted(t, 1)}
	other := request(q, secondKey, 5, 1).admitted(t, 1)
	if err := other.CheckEncryption(plain); err != nil {
		t.Fatal(err)
	}
	if n := q.recheck(); n != 0 {
		t.Fatalf("%d sessions ended, and no key has changed", n)
	}
	insist := func(on bool) func(m map[string]Admission) {
		return func(m map[string]Admission) {
			a := m[firstKey.ID]
			a.RequireEncrypt = on
			m[firstKey.ID] = a
		}
	}
	k.change(insist(true))
	if n := q.recheck(); n != 1 || !errors.As(context.Cause(without.ctx), new(*unencryptedError)) {
		t.Errorf("%d sessions ended; that without encryption: %v", n, context.Cause(without.ctx))
	}
	for _, h := range append(early, with, other) {
		if h.ctx.Err() != nil {
			t.Errorf("%v", context.Cause(h.ctx))
		}
	}
	if err := early[0].CheckEncryption(plain); !errors.As(err, new(*unencryptedError)) {
		t.Errorf("a hello without encryption: %v", err)
	}
	if err := early[1].CheckEncryption(sealed); err != nil {
		t.Error(err)
	}
	k.change(insist(false))
	q.recheck()
	if err := request(q, firstKey, 6, 1).admitted(t, 1).CheckEncryption(plain); err != nil {
		t.Errorf("the key asks for it no more: %v", err)
	}
}
