// Package soak copies random trees with random options while something goes wrong, and
// checks the program's rule after each copy: what gdrcp reported as arrived is there,
// byte for byte; the exit code and the summary agree; no partial file has a final name;
// no process is left; and the same command, run again, makes both ends equal.
//
// All random choices come from a seed and the number of the step, so that one step can
// be repeated by its number. The time of a fault is random, too, but how far the copy
// is by then depends on the machine.
//
//	GDRCP_TEST_SEED     the seed: any text
//	GDRCP_SOAK_SECONDS  how long to run; without it a few steps are run
//	GDRCP_SOAK_STEP     the one step to run
//	GDRCP_BINARY        the program to test; without it one is built
//	GDRCP_TEST_RDMA     device=address pairs with commas, as in the bed: copies go over these
//	GDRCP_TEST_SLOW     factor by which to stretch time limits
package soak
