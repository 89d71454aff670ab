// Package filter says which names a copy leaves out, by the rules of rsync(1),
// FILTER RULES: what a rule's text means (Parser), what its pattern matches
// (Rules), and what follows for the source, which hides names, and for the sink,
// which protects them from deletion (Matcher).
//
// Patterns come from a user, and on a server from a peer: a name is matched in
// time proportional to its length times that of the patterns, and without
// allocating, whatever they are.
package filter
