package credit_test

import (
	"errors"
	"testing"

	"gdrcp/xfer/internal/credit"
)

func TestWindowOpensWithWhatThePeerConsumed(t *testing.T) {
	w := credit.NewWindow(2)
	for want := uint64(1); want <= 2; want++ {
		if !w.Open() || w.Next() != want {
			t.Fatalf("open %t, next %d", w.Open(), w.Next())
		}
		w.Sent()
	}
	if from, below := w.Unacked(); w.Open() || from != 1 || below != 3 || w.Conversed() {
		t.Fatalf("open %t, unacked from %d below %d, conversed %t", w.Open(), from, below, w.Conversed())
	}
	for _, c := range []struct {
		consumed uint32
		opened   bool
		from     uint64
	}{{1, true, 2}, {1, false, 2}, {0, false, 2}, {2, true, 3}, {1, false, 3}, {^uint32(0), false, 3}} {
		opened, err := w.Heard(c.consumed)
		if from, _ := w.Unacked(); err != nil || opened != c.opened || from != c.from {
			t.Errorf("heard %d: opened %t, error %v, unacked from %d", c.consumed, opened, err, from)
		}
	}
	if !w.Conversed() {
		t.Error("the peer has consumed, and did not converse")
	}
	if opened, err := w.Heard(3); opened || !errors.Is(err, credit.ErrWindow) {
		t.Errorf("heard more than was sent: opened %t, error %v", opened, err)
	}
}

func TestWindowTakesEachMessageOnce(t *testing.T) {
	w := credit.NewWindow(2)
	take := func(seq uint64, news, good bool) {
		t.Helper()
		if got, err := w.Take(seq); got != news || (err == nil) != good || err != nil && !errors.Is(err, credit.ErrWindow) {
			t.Errorf("message %d: news %t, error %v", seq, got, err)
		}
	}
	take(2, false, false)
	take(1, true, true)
	take(1, false, true)
	if w.Conversed() {
		t.Error("one message is no conversation")
	}
	take(3, false, false)
	take(2, true, true)
	take(3, false, false) // beyond the window: no acknowledgement was sent
	if !w.Conversed() || w.Untold() != 0 {
		t.Errorf("conversed %t, %d untold", w.Conversed(), w.Untold())
	}
	w.Consume()
	take(3, false, false) // the peer has not been sent an acknowledgement
	if w.Untold() != 1 || w.Consumed() != 1 {
		t.Errorf("%d untold, %d consumed", w.Untold(), w.Consumed())
	}
	w.Told()
	take(3, true, true)
	take(1, false, true)
	take(^uint64(0), false, false)
}

func TestWindowHearsCountsBeyond32Bits(t *testing.T) {
	w := credit.NewWindow(4)
	const step = 1 << 31
	for range 3 {
		for range 4 {
			w.Sent()
		}
		sent, acked, _, _, _ := w.Counts()
		if opened, err := w.Heard(uint32(sent)); !opened || err != nil || sent-acked != 4 {
			t.Fatalf("heard %d after %d: opened %t, error %v", sent, acked, opened, err)
		}
	}
	sent, _, _, _, _ := w.Counts()
	for _, consumed := range []uint64{sent + 1, sent + step - 1} {
		if opened, err := w.Heard(uint32(consumed)); opened || !errors.Is(err, credit.ErrWindow) {
			t.Errorf("heard %d of %d: opened %t, error %v", consumed, sent, opened, err)
		}
	}
}

// FuzzWindow has a peer with arbitrary message numbers and acknowledgements.
func FuzzWindow(f *testing.F) {
	f.Add([]byte{0, 1, 1, 2, 2, 0, 2, 1, 3, 0, 1, 1})
	f.Add([]byte{2, 1, 2, 2, 3, 0, 4, 0, 2, 3, 0, 0, 1, 1})
	f.Fuzz(func(t *testing.T, in []byte) {
		const size = 3
		w := credit.NewWindow(size)
		for ; len(in) >= 2; in = in[2:] {
			sent, acked, received, consumed, told := w.Counts()
			switch n := uint64(int64(int8(in[1]))); in[0] % 5 {
			case 0:
				if w.Open() {
					w.Sent()
				}
			case 1:
				opened, err := w.Heard(uint32(n))
				_, now, _, _, _ := w.Counts()
				if now > sent || now < acked || opened != (now > acked) || err != nil && opened {
					t.Fatalf("heard %d: %d of %d acked, before %d, opened %t, error %v", n, now, sent, acked, opened, err)
				}
			case 2:
				news, err := w.Take(n)
				_, _, now, _, _ := w.Counts()
				if news != (now == received+1) || news && (err != nil || n != now || now-told > size) || !news && now != received {
					t.Fatalf("took %d: %d after %d received, news %t, error %v", n, now, received, news, err)
				}
			case 3:
				if consumed < received { // an end handles only messages that it received
					w.Consume()
				}
			case 4:
				w.Told()
			}
			if from, below := w.Unacked(); below-from > size || w.Untold() > size {
				t.Fatalf("%d unacked, %d untold", below-from, w.Untold())
			}
		}
	})
}
