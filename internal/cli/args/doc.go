// Package args is the grammar of the command line: it sorts arguments into commands,
// options and operands, and puts them into the order that the library of commands
// reads. Options may stand anywhere before "--". What other programs have and gdrcp
// has not it answers with what to use instead.
package args
