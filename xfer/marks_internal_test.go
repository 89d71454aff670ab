package xfer

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestRestBetweenMarks: a disk that takes long for a mark rests, but not while very much comes.
func TestRestBetweenMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			arrived int64
			want    time.Duration
		}{{markBytes, longestRest}, {restBytes, 0}} {
			k := &sink{mark: make(chan struct{}, 1), drained: make(chan struct{})}
			k.unmarked.Store(c.arrived)
			k.mark <- struct{}{}
			from := time.Now()
			k.restFromMarks(t.Context(), longestRest)
			if got := time.Since(from); got != c.want {
				t.Errorf("after %d bytes it rests for %v, want %v", c.arrived, got, c.want)
			}
		}
	})
}
