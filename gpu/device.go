package gpu

// Device describes a GPU. Fields that the driver does not know are -1, or empty.
type Device struct {
	// Index is the driver's ordinal, as CUDA_VISIBLE_DEVICES leaves it.
	Index int    `json:"index"`
	Name  string `json:"name"`
	// UUID is GPU-... in nvidia-smi's spelling, or MIG-... for an instance of a divided
	// GPU.
	UUID string `json:"uuid,omitempty"`
	// PCIAddress is domain:bus:device.function in sysfs's spelling.
	PCIAddress string `json:"pci_address"`
	// NUMANode is -1 if the kernel names no node.
	NUMANode      int   `json:"numa_node"`
	MemoryBytes   int64 `json:"memory_bytes"`
	BAR1Bytes     int64 `json:"bar1_bytes"`
	BAR1FreeBytes int64 `json:"bar1_free_bytes"`
	// ComputeMajor and ComputeMinor are the compute capability.
	ComputeMajor int `json:"compute_major"`
	ComputeMinor int `json:"compute_minor"`
	// DriverVersion is the CUDA version that the driver supports, as 12.4.
	DriverVersion string `json:"driver_version"`
	// DMABuf: memory can be exported as a dma-buf (attribute 124).
	DMABuf bool `json:"dma_buf"`
	// GPUDirect: the driver supports GPUDirect RDMA (attribute 116).
	GPUDirect bool `json:"gpudirect_rdma"`
	// HostFlush: FlushWrites works (attribute 117, option HOST).
	HostFlush bool `json:"host_flush"`
	// WritesOrdering is attribute 118: the writes of RDMA devices are ordered for
	// nobody (0), for the GPU itself (100), or for all GPUs (200).
	WritesOrdering int `json:"writes_ordering"`
	// C2C: the GPU has a coherent link to the CPU (Grace), and reaches the host's
	// memory through the CPU's page tables (attribute 100).
	C2C bool `json:"c2c"`
	// Problem says why the device cannot be used, or is empty.
	Problem string `json:"problem,omitempty"`
}
