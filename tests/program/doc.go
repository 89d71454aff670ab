// Package program tests the finished program: it runs the real binary as processes,
// servers and clients, over TCP and, if the environment names RDMA devices, over those.
//
//	GDRCP_BINARY     the program to test; without it one is built
//	GDRCP_TEST_RDMA  device=address pairs with commas, as in the bed
//	GDRCP_TEST_SLOW  factor by which to stretch time limits
//	GDRCP_TEST_FULL  1: full file counts and sizes
//
// If RDMA devices are named, only the tests that involve them run. The others are for a
// machine that is not emulated.
package program
