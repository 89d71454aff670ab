// Package program holds the finished program to what it promises: its tests
// run the real binary as processes, servers and clients, over TCP and, where
// the environment names RDMA devices, over those.
//
//	GDRCP_BINARY     the program to test; without it one is built
//	GDRCP_TEST_RDMA  device=address pairs with commas, as in the bed
//	GDRCP_TEST_SLOW  by what factor to stretch time limits
//	GDRCP_TEST_FULL  1: full file counts and sizes
//
// Where RDMA devices are named only the tests that have to do with them run:
// the others are for a machine that is not emulated.
package program
