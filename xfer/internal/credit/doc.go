// Package credit decides which slot of a sink's ring may be written over which
// link, and what the two ends repeat when a link fails. It has no locks, slot
// memory or connections: the engine calls it under the lock that guards the
// slots, and the model in its tests explores every order of its steps.
//
// A link is a session's use of a rail from the time when the rail joins until
// it is lost. Links are numbered from 1 and a number is never reused, so that
// it also serves as an epoch.
//
// The rules:
//
//   - The source writes only to slots that the sink has granted: a grant is a slot with a
//     generation, and is used once. The sink accepts an announcement only for a slot that it has granted
//     and that has not been announced since.
//   - The sink returns a slot with the next generation, after it has finished reading it.
//   - When a link is lost, the source writes nothing more over it and closes its
//     connections. It then sends the sink a list of every slot that it addressed over the link
//     and that has not been returned. Such a slot is quarantined: nothing is written to it.
//   - The sink closes its own connections of the link, after which nothing can land
//     through it, and accepts no more announcements from it. Only then does it answer
//     which of the listed slots were never announced. Those get the next generation.
//   - The source considers these granted again, and sends their chunks over other links.
//     The other listed slots are returned in the usual way.
package credit
