package cli

import (
	"testing"
	"time"
)

// Waits grow from a second to a minute, and spread by a quarter.
func TestRetryWait(t *testing.T) {
	for _, c := range []struct {
		retry  int
		random float64
		want   time.Duration
	}{
		{1, 0.5, time.Second}, {1, 0, 750 * time.Millisecond}, {1, 1, 1250 * time.Millisecond}, {2, 0.5, 2 * time.Second}, {3, 0.5, 4 * time.Second},
		{6, 0.5, 32 * time.Second}, {7, 0.5, time.Minute}, {1 << 30, 0.5, time.Minute}, {1 << 30, 1, 75 * time.Second},
	} {
		if got := retryWait(c.retry, c.random); got != c.want {
			t.Errorf("retry %d, random %v: %v, want %v", c.retry, c.random, got, c.want)
		}
	}
}
