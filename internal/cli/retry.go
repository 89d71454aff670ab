package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/xfer"
)

// defaultRetries is the default number of retries of a copy.
const defaultRetries = 3

// These bound the wait before a retry. It is firstRetryWait the first time and doubles
// each time up to maxRetryWait. Each wait varies by up to a quarter, so that the
// clients of a restarted server do not all come back together.
const (
	firstRetryWait = time.Second
	maxRetryWait   = time.Minute
)

// retryWait returns how long to wait before a retry, which counts from 1. random is from 0 to 1.
func retryWait(retry int, random float64) time.Duration {
	wait := firstRetryWait
	for i := 1; i < retry && wait < maxRetryWait; i++ {
		wait *= 2
	}
	return time.Duration(float64(min(wait, maxRetryWait)) * (0.75 + random/2))
}

// lostFarEnd reports that the remote process of host:path, or the connection to it, is
// lost. A new process can resume the copy.
type lostFarEnd struct{ error }

func (l *lostFarEnd) Unwrap() error { return l.error }

// untilDone copies by calling try, and repeats that after each loss of a connection, as
// often as --retries allows, with a wait between attempts, until ctx ends. A switch to
// another device or transport after a failure does not count as a retry.
func (c *copyRun) untilDone(ctx context.Context, o xfer.Options, try func(o xfer.Options) (*xfer.Summary, error)) (*xfer.Summary, error) {
	o.Tries = xfer.NewTries()
	retries := c.retries
	if c.stream != nil || !o.MayTryAgain() {
		o.Tries.OnlyOtherWays()
		retries = 0
	}
	for made := 0; ; made++ {
		o.Tries.IsLast(made >= retries)
		s, err := try(o)
		next := o.Tries.NextWay()
		if err == nil || ctx.Err() != nil || made == retries && next == "" || !mayGoOn(o.Tries, err) {
			return s, err
		}
		wait := time.Duration(0)
		if next != "" { // happens only a few times, so these do not count
			c.tellNextWay(err, next, made)
			made--
		} else {
			wait = retryWait(made+1, rand.Float64())
			c.tellRetry(err, made+1, wait)
		}
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return s, context.Cause(ctx)
		}
		o.Tries.Again(o.Tally)
	}
}

// mayGoOn reports whether another attempt may succeed because the connection of the
// last one was lost.
func mayGoOn(t *xfer.Tries, err error) bool {
	return t.MayGoOn(err) || errors.As(err, new(*lostFarEnd)) && t.HaveStood()
}

// tellNextWay prints why the copy restarts over another path, and over which.
func (c *copyRun) tellNextWay(err error, next string, made int) {
	text := lineOf(err) + "; next over " + next
	if hint := hintOf(err); hint != "" {
		text += " (" + hint + ")"
	}
	c.log.line("%s", text)
	switch {
	case c.json:
		c.events.emit(retryEvent{"retry", text, made, c.retries, 0})
	case !c.quiet:
		c.console.line("gdrcp: %s", text)
	}
}

// tellRetry prints why and when the copy restarts.
func (c *copyRun) tellRetry(err error, retry int, wait time.Duration) {
	text := lineOf(err)
	c.log.line("retry %d of %d in %.1f s: %s", retry, c.retries, wait.Seconds(), text)
	switch {
	case c.json:
		c.events.emit(retryEvent{"retry", text, retry, c.retries, wait.Seconds()})
	case !c.quiet:
		c.console.line("gdrcp: %s; the copy goes on in %.1f s (retry %d of %d)", text, wait.Seconds(), retry, c.retries)
	}
}

// isLasting reports whether the remote process, or the program that starts it, has
// refused the request for a reason that would not change.
func isLasting(err error) bool {
	return errors.As(err, new(*remote.RefusedError)) || errors.Is(err, remote.ErrMissing) || errors.Is(err, remote.ErrVersion)
}
