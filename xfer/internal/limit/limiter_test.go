package limit

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pass passes chunks until ctx ends, and counts their bytes.
func pass(ctx context.Context, ls Limits, chunk int64, passed *atomic.Int64) {
	for ls.Wait(ctx, chunk, nil) == nil {
		passed.Add(chunk)
	}
}

// In 2 s the bytes that pass match the rate, within a tenth, however large the chunks are
// and however many users there are.
func TestLimiterIsAccurate(t *testing.T) {
	for _, tc := range []struct {
		name   string
		rate   int64
		chunk  int64
		askers int
	}{
		{"small chunks", 10 << 20, 64 << 10, 1},
		{"many askers", 10 << 20, 256 << 10, 8},
		{"slow", 100_000, 1000, 3},
		{"slowest", 1, 8, 1},
		{"fast", 4 << 30, 1 << 20, 8},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				l := New(tc.rate)
				var passed atomic.Int64
				for range tc.askers {
					go pass(ctx, Of(l), tc.chunk, &passed)
				}
				<-ctx.Done()
				synctest.Wait()
				want := 2 * float64(l.BytesPerSecond())
				if got := float64(passed.Load()); got < 0.9*want || got > 1.1*want {
					t.Errorf("%.0f bytes passed in 2 s at %d a second", got, l.BytesPerSecond())
				}
			})
		})
	}
}

// A user that continues later than it may, for example after a sleep that was too long,
// loses no time within the slack, and beyond it exactly the excess. It never gains any.
func TestLimiterOfLateUsers(t *testing.T) {
	const rate, chunk, slack = 8 << 20, 8 << 10, 20 * time.Millisecond
	for _, late := range []time.Duration{slack / 4, slack, 5 * slack} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
			defer cancel()
			passed, ls, start := 0, Of(New(rate)), time.Now()
			last := start
			wakes := func() {
				if time.Now().After(last) { // it has slept
					time.Sleep(late)
				}
				last = time.Now()
			}
			for ls.Wait(ctx, chunk, wakes) == nil {
				passed += chunk
			}
			want := rate * time.Since(start).Seconds()
			if late > slack {
				want *= float64(slack+time.Second*chunk/rate) / float64(late+time.Second*chunk/rate)
			}
			if got := float64(passed); got < 0.9*want || got > 1.1*want {
				t.Errorf("%v late: %.0f bytes passed, want %.0f", late, got, want)
			}
		})
	}
}

// On a real clock, too, no more passes than allowed; on a busy machine it may be less.
func TestLimiterOnARealClock(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	var passed atomic.Int64
	start := time.Now()
	pass(ctx, Of(New(8<<20)), 64<<10, &passed)
	want := (8 << 20) * time.Since(start).Seconds()
	if got := float64(passed.Load()); got == 0 || got > 1.1*want {
		t.Errorf("%.0f bytes passed, want %.0f", got, want)
	}
}

// Two sessions share a limit equally, even if one has many workers with large chunks, and
// if one of them has a lower limit of its own.
func TestLimiterStarvesNobody(t *testing.T) {
	for _, tc := range []struct {
		name      string
		own       int64 // limit of the second session
		low, high float64
	}{
		{"shared", 0, 0.08, 0.2},    // one user of nine: a ninth
		{"own", 1 << 20, 0.02, 0.1}, // no more than its own
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const rate = 20 << 20
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				shared := New(rate)
				var many, one atomic.Int64
				for range 8 {
					go pass(ctx, Of(shared), 16<<20, &many)
				}
				go pass(ctx, Of(shared, New(tc.own)), 64<<10, &one)
				<-ctx.Done()
				synctest.Wait()
				share := float64(one.Load()) / (30 * rate)
				if share < tc.low || share > tc.high {
					t.Errorf("a session with small chunks had %.3f of the limit", share)
				}
				if all := float64(one.Load() + many.Load()); all < 0.7*30*rate || all > 1.01*30*rate {
					t.Errorf("%.0f bytes passed of %d", all, 30*rate)
				}
			})
		})
	}
}

// Unused time is not made up for.
func TestLimiterSavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ls := Of(New(1 << 20))
		time.Sleep(time.Hour)
		start := time.Now()
		if err := ls.Wait(t.Context(), 1<<20, nil); err != nil || time.Since(start) < 900*time.Millisecond {
			t.Errorf("a second's bytes passed in %v: %v", time.Since(start), err)
		}
	})
}

func TestLimiterEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := errors.New("ended")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ended) })
		start := time.Now()
		if err := Of(New(1)).Wait(ctx, 1<<30, nil); !errors.Is(err, ended) || time.Since(start) > 2*time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if err := Of(nil, New(0)).Wait(ctx, 1<<60, nil); err != nil {
			t.Errorf("no limit: %v", err)
		}
	})
}

func TestLimitedSlots(t *testing.T) {
	for _, tc := range []struct{ rate, slots, want int }{{0, 16, 16}, {1, 16, 2}, {4 << 20, 16, 4}, {1 << 40, 16, 16}, {1, 1, 1}} {
		if got := Of(New(int64(tc.rate))).Slots(tc.slots, 1<<20); got != tc.want {
			t.Errorf("%d slots at %d bytes a second, want %d", got, tc.rate, tc.want)
		}
	}
}
