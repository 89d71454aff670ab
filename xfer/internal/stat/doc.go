// Package stat counts what sessions do. Whoever shows or measures that (the line of progress, a server's figures) reads
// the counters while the sessions run, and holds nothing up by it.
package stat
