// Package filter decides which names a copy excludes, by the rules of rsync(1), FILTER
// RULES. Parser reads a rule's text, Rules match its pattern, and Matcher gives the result
// for the source, which hides names, and for the sink, which protects them from deletion.
//
// Patterns come from a user, and on a server from a peer. Whatever the
// patterns, matching a name takes time proportional to the product of its
// length and theirs, and allocates nothing.
package filter
