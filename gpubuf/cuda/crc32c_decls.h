// What crc32c.cu uses of CUDA's headers, for a clang that has none of them.

#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct alignas(16) uint4 {
	unsigned int x, y, z, w;
};

// The special registers, read where the source names the variable's member.
struct crc32c_tid {
	__declspec(property(get = read)) unsigned int x;
	__device__ static unsigned int read() { return __nvvm_read_ptx_sreg_tid_x(); }
};
struct crc32c_ctaid {
	__declspec(property(get = read)) unsigned int x;
	__device__ static unsigned int read() { return __nvvm_read_ptx_sreg_ctaid_x(); }
};
struct crc32c_nctaid {
	__declspec(property(get = read)) unsigned int x;
	__device__ static unsigned int read() { return __nvvm_read_ptx_sreg_nctaid_x(); }
};
#define threadIdx (crc32c_tid())
#define blockIdx (crc32c_ctaid())
#define gridDim (crc32c_nctaid())

__device__ inline unsigned int __shfl_sync(unsigned int mask, unsigned int v, int lane)
{
	return __nvvm_shfl_sync_idx_i32(mask, v, lane, 31);
}

__device__ inline unsigned int __shfl_down_sync(unsigned int mask, unsigned int v, unsigned int delta)
{
	return __nvvm_shfl_sync_down_i32(mask, v, delta, 31);
}
