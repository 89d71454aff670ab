package xfer

import (
	"context"
	"errors"
	"testing"

	"gdrcp/xfer/internal/wire"
)

// A key that begins to ask for encryption ends its sessions without, and leaves
// those with it, whether their hello has come or not.
func TestEncryptionThatIsRequiredLater(t *testing.T) {
	OnHost(t)
	t.Parallel()
	k := twoKeys(t.TempDir())
	v := NewServer(ServerConfig{Keys: k})
	sealed, plain := &wire.Hello{Terms: wire.Terms{Flags: wire.FlagEncrypt}}, &wire.Hello{}
	heard := func(n byte, h *wire.Hello) *serverSession {
		t.Helper()
		host := request(v, testKey, n, 1).admitted(t, 1)
		if err := v.checkEncryption(host, h); err != nil {
			t.Fatal(err)
		}
		return host
	}
	with, without := heard(1, sealed), heard(2, plain)
	early := []*serverSession{request(v, testKey, 3, 1).admitted(t, 1), request(v, testKey, 4, 1).admitted(t, 1)}
	other := request(v, otherKey, 5, 1).admitted(t, 1)
	if err := v.checkEncryption(other, plain); err != nil {
		t.Fatal(err)
	}
	if n := v.Recheck(); n != 0 {
		t.Fatalf("%d sessions ended, and no key has changed", n)
	}
	insist := func(on bool) func(m map[string]Admission) {
		return func(m map[string]Admission) {
			a := m[testKey.ID]
			a.RequireEncrypt = on
			m[testKey.ID] = a
		}
	}
	k.change(insist(true))
	if n := v.Recheck(); n != 1 || !errors.Is(context.Cause(without.ctx), errUnencrypted) {
		t.Errorf("%d sessions ended; that without encryption: %v", n, context.Cause(without.ctx))
	}
	for _, h := range append(early, with, other) {
		if h.ctx.Err() != nil {
			t.Errorf("%v", context.Cause(h.ctx))
		}
	}
	if err := v.checkEncryption(early[0], plain); !errors.Is(err, errUnencrypted) {
		t.Errorf("a hello without encryption: %v", err)
	}
	if err := v.checkEncryption(early[1], sealed); err != nil {
		t.Error(err)
	}
	k.change(insist(false))
	v.Recheck()
	if err := v.checkEncryption(request(v, testKey, 6, 1).admitted(t, 1), plain); err != nil {
		t.Errorf("the key asks for it no more: %v", err)
	}
}
