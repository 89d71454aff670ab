// Package gpu manages device memory for the transfer engine. It allocates the memory,
// copies to and from it, exports it as a dma-buf for RDMA devices, digests its contents
// with BLAKE3, and makes an RDMA device's writes to it visible.
//
// It uses only NVIDIA's driver, through libcuda.so.1, which it opens at run time:
// neither building nor running needs the CUDA toolkit, and the same binary starts on
// machines without a GPU. In a program that was built without cgo, [Open] says so.
//
// A [Driver] is the opened library; a [Context] is one user's use of a GPU, and
// everything else belongs to a Context and is closed before it. A GPU's primary context
// and the kernels take long to make: all users of the GPU share them, and the Driver
// keeps them for a while after the last user. They also share a dispatcher, which digests
// what several of them submit at the same time in one launch: a [Submitter] is one user's
// way to it, and a [Hasher] makes launches of its own. A [Memory] and an offset name device
// memory, and every access is checked against the memory's length. A device address
// leaves the package only to be registered with an RDMA device.
//
// Methods may be called from several goroutines at once unless their comments say
// otherwise. They push and pop the context inside one call into C: CUDA's current
// context belongs to a thread, and goroutines move between threads.
package gpu
