package door

import (
	"context"
	"errors"
	"testing"
)

// A key that begins to ask for encryption ends its sessions without, and leaves
// those with it, whether their hello has come or not.
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

// What a session can do without leaves something to other keys, also where the session has the
// smallest ring, and to clients that wait.
func TestMoreMemoryIsWhatNobodyElseWants(t *testing.T) {
	t.Parallel()
	const more = 8 << 20
	ringBytes := ringOf(1, 2, 1<<20)
	for _, tc := range []struct {
		name         string
		left         int64
		isWaiting    bool
		books, grows bool
	}{
		{"enough", 2 * more, false, true, true},
		{"nothing is left", more - 1, false, false, false},
		{"nothing would be left", more, false, true, false},
		{"a client waits", 2 * more, true, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := queueOf(Config{Keys: keysOf(firstKey, secondKey), MaxMemory: ringBytes + tc.left, MaxSessions: 1})
			s := request(q, firstKey, 1, 2).admitted(t, 2)
			if tc.isWaiting {
				if w := request(q, secondKey, 2, 2); w.decided() {
					t.Fatalf("it does not wait: %v", w.no)
				}
			}
			back, ok := s.BookMore(more)
			if ok != tc.grows {
				t.Errorf("more memory: %t, want %t", ok, tc.grows)
			}
			back()
			back, _, ok = s.Book(more, true)
			if ok != tc.books {
				t.Errorf("what it needs: %t, want %t", ok, tc.books)
			}
			back()
			if q.memory != ringBytes {
				t.Errorf("%d bytes are booked, want %d", q.memory, ringBytes)
			}
		})
	}
}
