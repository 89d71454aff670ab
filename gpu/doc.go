// Package gpu manages device memory for the transfer engine. It allocates the memory,
// copies to and from it, exports it as a dma-buf for RDMA devices, digests its contents
// with BLAKE3, and makes an RDMA device's writes to it visible.
//
// It uses only NVIDIA's driver, through libcuda.so.1, which it opens at run time: neither
// building nor running needs the CUDA toolkit, and the same binary starts on machines
// without a GPU. In a program that was built without cgo, [Open] fails with that reason.
//
// A [Driver] is the opened library; a [Context] is one user's use of a GPU, and all other
// objects belong to a Context and are closed before it. A GPU's primary context and
// kernels take long to create: all users of the GPU share them, and the Driver keeps them
// for a while after the last user. The users also share a dispatcher, which digests in one
// launch what several of them submit at the same time: a [Submitter] is one user's access
// to it, and a [Hasher] makes launches of its own. Device memory is addressed by a
// [Memory] and an offset, and every access is checked against the memory's length. A
// device address leaves the package only to be registered with an RDMA device.
//
// Methods are safe for concurrent use unless their comments say otherwise. They
// push and pop the context inside one call into C: CUDA's current context
// belongs to a thread, and goroutines move between threads.
package gpu
