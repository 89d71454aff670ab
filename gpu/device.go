package gpu

// Device describes a GPU. Fields that the driver does not report are -1, or empty.
type Device struct {
	// Index is the driver's ordinal, among the devices that CUDA_VISIBLE_DEVICES allows.
	Index int    `json:"index"`
	Name  string `json:"name"`
	// UUID is GPU-... in nvidia-smi's spelling, or MIG-... for a MIG instance.
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
	// DriverVersion is the CUDA version that the driver supports, such as 12.4.
	DriverVersion string `json:"driver_version"`
	// DMABuf: memory can be exported as a dma-buf (attribute 124).
	DMABuf bool `json:"dma_buf"`
	// GPUDirect: the driver supports GPUDirect RDMA (attribute 116).
	GPUDirect bool `json:"gpudirect_rdma"`
	// HostFlush: FlushWrites works (attribute 117, option HOST).
	HostFlush bool `json:"host_flush"`
	// WritesOrdering is attribute 118: the writes of RDMA devices are not
	// ordered (0), ordered for the GPU itself (100), or for all GPUs (200).
	WritesOrdering int `json:"writes_ordering"`
	// C2C: the GPU has a coherent link to the CPU (Grace), and accesses the
	// host's memory through the CPU's page tables (attribute 100).
	C2C bool `json:"c2c"`
	// Problem is the reason why the device cannot be used, or empty.
	Problem string `json:"problem,omitempty"`
}
