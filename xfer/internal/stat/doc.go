// Package stat counts what sessions do. Code that shows or measures this (the line of
// progress, a server's figures) reads the counters while the sessions run, and holds
// nothing up.
package stat
