package xfer

import (
	"gdrcp/xfer/internal/link"
	"gdrcp/xfer/internal/result"
	"gdrcp/xfer/internal/stat"
	"gdrcp/xfer/internal/wire"
)

// Event is something that happened in a session.
type Event = result.Event

// EventKind says what an Event reports.
type EventKind = result.EventKind

// The kinds of events.
const (
	EventConnected  = result.EventConnected
	EventFile       = result.EventFile
	EventMemory     = result.EventMemory
	EventWaiting    = result.EventWaiting
	EventDeleted    = result.EventDeleted
	EventPlaced     = result.EventPlaced
	EventRailLost   = result.EventRailLost
	EventRailJoined = result.EventRailJoined
	EventRailUnused = result.EventRailUnused
	EventRing       = result.EventRing
	EventWarning    = result.EventWarning
	EventAfresh     = result.EventAfresh
)

// Place says what the paths of a copy's entries are relative to.
type Place = result.Place

// End is one of the two ends of a session, as the reporting end sees them.
type End = result.End

// The ends.
const (
	NoEnd    = result.NoEnd
	ThisEnd  = result.ThisEnd
	OtherEnd = result.OtherEnd
)

// Link describes what carries a session.
type Link = result.Link

// Summary is the result of a session.
type Summary = result.Summary

// RailUse is a copy's use of one rail.
type RailUse = result.RailUse

// Tally counts what a session has done so far. It may be read while the session runs.
type Tally = stat.Counters

// Progress is a reading of a Tally.
type Progress = stat.Progress

// Timeouts bound how long a peer may keep a session waiting.
type Timeouts = link.Timeouts

// DefaultTimeouts returns timeouts for real networks.
func DefaultTimeouts() Timeouts { return link.DefaultTimeouts() }

// AbortWait is the longest time that an end that fails or is stopped takes to send its abort.
const AbortWait = link.AbortWait

// Cost is the cost of a copy, or a bench, at one end.
type Cost = wire.Cost
