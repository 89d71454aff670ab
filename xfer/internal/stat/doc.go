// Package stat counts what sessions do. Code that displays or measures this (the progress
// line, a server's metrics) reads the counters while the sessions run, without blocking
// them.
package stat
