// Package gpu is device memory for the transfer engine: it allocates it, copies
// to and from it, exports it as a dma-buf for RDMA devices, digests what is in
// it with BLAKE3, and makes visible what an RDMA device wrote to it.
//
// It speaks to NVIDIA's driver alone, through libcuda.so.1, which is opened at
// run time: no CUDA toolkit is needed to build or to run, and one binary
// starts on machines without a GPU. Where the program was built without cgo,
// [Open] says so.
//
// A [Driver] is the opened library; a [Context] is one user's use of a GPU, and
// everything else belongs to a Context and is closed before it. What takes long
// to make, a GPU's primary context and the kernels, all its users share, and the
// Driver keeps it for a while after the last of them. Device memory is named by
// a [Memory] and an offset, and every access is checked against its length: a
// device address never leaves the package but to be registered with an RDMA
// device.
//
// Methods may be called from several goroutines at once where nothing else is
// said. They push the context and pop it inside one call into C: CUDA's current
// context belongs to a thread, and goroutines move between threads.
package gpu
