package cli

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"gdrcp/internal/remote"
	"gdrcp/xfer"
)

// defaultRetries is how often a copy begins again by itself if nobody says so.
const defaultRetries = 3

// The wait before a copy begins again: firstRetryWait the first time, then twice as long
// each time up to maxRetryWait, each of them up to a quarter longer or shorter, so that
// the clients of a server that was started anew do not all come at once.
const (
	firstRetryWait = time.Second
	maxRetryWait   = time.Minute
)

// retryWait is how long to wait before a retry, which counts from 1. random is from 0
// to 1.
func retryWait(retry int, random float64) time.Duration {
	wait := firstRetryWait
	for i := 1; i < retry && wait < maxRetryWait; i++ {
		wait *= 2
	}
	return time.Duration(float64(min(wait, maxRetryWait)) * (0.75 + random/2))
}

// lostFarEnd says that the far end of host:path, or the way to it, is gone: a new one can
// go on.
type lostFarEnd struct{ error }

func (l *lostFarEnd) Unwrap() error { return l.error }

// untilDone copies by try, and again after each loss of a connection, as often as
// --retries says, between two tries after a wait, until ctx ends. An attempt over another device
// or transport, if one has failed, does not count.
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
		if next != "" { // a few times at most: these do not count
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

// mayGoOn reports whether another try may do what one could not, as its connection was
// lost.
func mayGoOn(t *xfer.Tries, err error) bool {
	return t.MayGoOn(err) || errors.As(err, new(*lostFarEnd)) && t.HaveStood()
}

// tellNextWay says why the copy begins again over another way, and over which.
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

// tellRetry says why the copy begins again, and when.
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

// isLasting reports whether the far end, or the program that starts it, has said why it
// cannot do what it was asked to do: it would say so again.
func isLasting(err error) bool {
	return errors.As(err, new(*remote.RefusedError)) || errors.Is(err, remote.ErrMissing) || errors.Is(err, remote.ErrVersion)
}
