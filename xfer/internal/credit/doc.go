// Package credit decides which slot of a sink's ring may be written over which link, and
// what two ends say again when a link dies. It has no locks, no memory of slots and no
// connections: the engine calls it under the lock that guards the slots, and the model in
// its tests explores every order of its steps.
//
// A link is what a session has on a rail from the time when the rail joins until it is
// lost. Links are numbered from 1 and a number is never used twice, so that it serves as
// an epoch, too.
//
// The rules:
//
//   - The source writes to a slot only what the sink has granted: a slot with a
//     generation, once. The sink takes an announcement only of a slot that it has granted
//     and that was not announced since.
//   - A slot comes back with the next generation, after the sink has let go of it.
//   - When a link is lost, the source writes nothing more over it and closes its
//     connections. It then names to the sink every slot that it addressed over the link
//     and that has not come back. Such a slot is quarantined: nothing is written to it.
//   - The sink closes its own connections of the link, after which nothing can land
//     through it, and takes no announcement from it any more. Only then does it answer
//     which of the named slots were never announced. Those get the next generation.
//   - The source takes these as granted again, and sends their chunks over other links.
//     The other named slots come back in the usual way.
package credit
