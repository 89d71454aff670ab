/* Compares abi.h and table.h with NVIDIA's headers. Compiling this file is the
 * test. It is C++ because C cannot take a function's type apart. With
 * -DWITH_NVML it compares nvml.h, too. */
#include <cuda.h>
#include <cudaTypedefs.h>
#ifdef WITH_NVML
#include <nvml.h>
#endif

#include "../table.h"

#include <type_traits>

/* Passed in the same way: both are pointers, or neither is and both have one
 * size. */
template <class A, class B>
constexpr bool alike = sizeof(A) == sizeof(B) && std::is_pointer<A>::value == std::is_pointer<B>::value;

template <class A, class B> struct same : std::false_type {};
template <class R, class... A, class S, class... B> struct same<R (*)(A...), S (*)(B...)> {
	template <class, class, class = void> struct all : std::false_type {};
	template <class... X, class... Y>
	struct all<void (*)(X...), void (*)(Y...), std::enable_if_t<sizeof...(X) == sizeof...(Y)>>
		: std::bool_constant<(alike<X, Y> && ...)> {};
	static constexpr bool value = alike<R, S> && all<void (*)(A...), void (*)(B...)>::value;
};

constexpr bool equal(const char *a, const char *b)
{
	while (*a && *a == *b)
		a++, b++;
	return *a == *b;
}

#define SPELL(x) #x
#define EXPANDED(x) SPELL(x)
/* The type of that name has these arguments since that version. If that version
 * is still the newest, the header turns the plain name into the symbol. */
#define FUNCTION(name, version, exported, args)                                                          \
	static_assert(same<decltype(gdr_api::name), PFN_##name##_v##version>::value, #name " differs");   \
	static_assert(!equal(EXPANDED(PFN_##name), "PFN_" #name "_v" #version) ||                        \
		      equal(EXPANDED(name), exported), #name " is another symbol");
GDR_CUDA_REQUIRED(FUNCTION)
GDR_CUDA_OPTIONAL(FUNCTION)

#define VALUE(mine, theirs) static_assert((int)mine == (int)theirs, #mine " differs")
VALUE(ABI_SUCCESS, CUDA_SUCCESS);
VALUE(ABI_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE);
VALUE(ABI_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
VALUE(ABI_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY);
VALUE(ABI_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
VALUE(ABI_NOT_SUPPORTED, CUDA_ERROR_NOT_SUPPORTED);
VALUE(ABI_SYSTEM_NOT_READY, CUDA_ERROR_SYSTEM_NOT_READY);
VALUE(ABI_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
VALUE(ABI_UNKNOWN, CUDA_ERROR_UNKNOWN);
VALUE(ABI_ATTR_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE);
VALUE(ABI_ATTR_COMPUTE_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
VALUE(ABI_ATTR_COMPUTE_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
VALUE(ABI_ATTR_HOST_PAGE_TABLES, CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES);
VALUE(ABI_ATTR_GPUDIRECT_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
VALUE(ABI_ATTR_FLUSH_OPTIONS, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS);
VALUE(ABI_ATTR_WRITES_ORDERING, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING);
VALUE(ABI_ATTR_DMA_BUF, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED);
VALUE(ABI_COMPUTE_MODE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED);
VALUE(ABI_FLUSH_OPTION_HOST, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST);
VALUE(ABI_FLUSH_TARGET_CURRENT_CTX, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX);
VALUE(ABI_FLUSH_TO_OWNER, CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER);
VALUE(ABI_POINTER_SYNC_MEMOPS, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS);
VALUE(ABI_HANDLE_DMA_BUF_FD, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD);
VALUE(ABI_HOST_REGISTER_PORTABLE, CU_MEMHOSTREGISTER_PORTABLE);
VALUE(ABI_HOST_REGISTER_DEVICEMAP, CU_MEMHOSTREGISTER_DEVICEMAP);
VALUE(ABI_STREAM_WRITE_VALUE_DEFAULT, CU_STREAM_WRITE_VALUE_DEFAULT);
VALUE(ABI_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
VALUE(ABI_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
static_assert(sizeof(abi_uuid) == sizeof(CUuuid), "abi_uuid has another size");

#ifdef WITH_NVML
#define NVML_FUNCTION(name, args) \
	static_assert(same<decltype(gdr_nvml::name), decltype(&::name)>::value, #name " differs");
GDR_NVML(NVML_FUNCTION)
static_assert(sizeof(abi_nvml_bar1) == sizeof(nvmlBAR1Memory_t), "abi_nvml_bar1 has another size");
static_assert(offsetof(abi_nvml_bar1, total_bytes) == offsetof(nvmlBAR1Memory_t, bar1Total), "moved");
static_assert(offsetof(abi_nvml_bar1, free_bytes) == offsetof(nvmlBAR1Memory_t, bar1Free), "moved");
#endif
