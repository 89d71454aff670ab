// Package args is the grammar of the command line: it sorts arguments into commands,
// options and operands, and puts them into the order that the library of commands
// reads. Options may stand anywhere before "--". For an option that other programs have
// and gdrcp lacks, the error says what to use instead.
package args
