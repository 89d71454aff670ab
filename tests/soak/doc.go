// Package soak copies random trees with random options while something goes wrong, and
// holds the program to its rule after each copy: what gdrcp said arrived is there, byte for
// byte; the exit code and the summary agree; nothing half-written has a final name; no
// process is left; and the same command, run again, makes both ends equal.
//
// All that is random comes from a seed and the number of the step, so that one step can be
// run again by its number. When a fault strikes is random, too, but how far the copy is by
// then depends on the machine.
//
//	GDRCP_TEST_SEED     the seed: any text
//	GDRCP_SOAK_SECONDS  for how long to go on; without it some steps are run
//	GDRCP_SOAK_STEP     the one step to run
//	GDRCP_BINARY        the program to test; without it one is built
//	GDRCP_TEST_RDMA     device=address pairs with commas, as in the bed: copies go over these
//	GDRCP_TEST_SLOW     by what factor to stretch time limits
package soak
