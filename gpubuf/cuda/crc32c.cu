// CRC-32C (Castagnoli) of device memory, for (*Device).CRC32C; sum.go launches
// it and sum_math.go finishes what it leaves. crc32c.ptx is made of it by
//
//	make ptx
//
// with clang 14, whose PTX drivers older than that of nvcc 13 take too. Nothing of
// CUDA is needed: crc32c_decls.h declares what is used of its headers. nvcc makes
// as good a PTX for itself, by nvcc -ptx -O3 -o crc32c.ptx crc32c.cu.
//
// A CRC register, started from zero, is linear in the message: it is the sum over
// the 32-bit words w of w times x to the number of bits from the word's start to
// the message's end, modulo P. Registers are reflected: bit 31 is x^0.
//
// The threads of the grid take the 16-byte groups in turn, each one group of
// every `stride` (the number of threads), counted from the end of the message, and
// from far to near: each keeps four sums, one for each word of a group, and
// multiplies them by x^(128 stride) from group to group. That multiplication is
// the work. It is linear too, so it is looked up, 5 bits of the sum at a time, in
// tables of which every lane of a warp has its own copy in a bank of shared
// memory of its own: no two lanes ever wait for each other.
//
// Then the sums of a thread, of a warp and of a block are put together, each time
// multiplied by the power of x that the place of the right-hand side stands for.
// The host does so with the blocks' sums, and with the bytes before and behind the
// aligned groups, which come back with them.

typedef unsigned int u32;
typedef unsigned long long u64;

namespace {

constexpr u32 poly = 0x82f63b78; // P without x^32, reflected
constexpr u32 threads = 256;
constexpr u32 rows = 6 * 32 + 4; // tables of 5 bits, and one of the last 2

// x^(128 * 2^i) mod P. sum_math_test.go computes them again.
#define CRC32C_POWERS \
	0x18b8ea18, 0x510ac59a, 0xb82be955, 0xb8fdb1e7, 0x88e56f72, 0x74c360a4, 0xe4172b16, 0x0d65762a

__device__ inline u32 timesX(u32 a) { return (a >> 1) ^ (poly & (0 - (a & 1))); }

// times returns a b mod P.
__device__ inline u32 times(u32 a, u32 b) {
	u32 r = 0;
#pragma unroll
	for (int i = 31; i >= 0; i--) {
		r ^= b & (0 - (a >> i & 1));
		b = timesX(b);
	}
	return r;
}

__device__ inline u32 timesX32(u32 a) {
#pragma unroll
	for (int i = 0; i < 32; i++) {
		a = timesX(a);
	}
	return a;
}

// fill fills the tables with the multiples of k. A warp computes 32 rows, one in
// each lane, and writes them to all banks.
__device__ inline void fill(u32 (*table)[32], u32 k) {
	const u32 lane = threadIdx.x % 32, first = threadIdx.x - lane;
	const u32 value = first < rows ? times(lane << first / 32 * 5, k) : 0;
#pragma unroll
	for (u32 i = 0; i < 32; i++) {
		const u32 v = __shfl_sync(~0u, value, i);
		if (first + i < rows) {
			table[first + i][lane] = v;
		}
	}
	__syncthreads();
}

// timesK looks the product of a and k up.
__device__ inline u32 timesK(const u32 (*table)[32], u32 a) {
	const u32 lane = threadIdx.x % 32;
	u32 r = table[a & 31][lane];
#pragma unroll
	for (u32 i = 1; i < 7; i++) {
		r ^= table[i * 32 + (a >> i * 5 & 31)][lane];
	}
	return r;
}

// groups returns the thread's share of n groups at p.
__device__ inline u32 groups(const uint4 *p, u64 n, const u32 (*table)[32]) {
	const u64 stride = (u64)gridDim.x * threads;
	const u64 mine = (u64)blockIdx.x * threads + threadIdx.x;
	if (mine >= n) {
		return 0;
	}
	const u64 turns = (n - 1 - mine) / stride;
	p += n - 1 - mine - turns * stride;
	uint4 sum = *p, next;
	if (turns > 0) {
		next = p[stride];
	}
	for (u64 i = turns; i > 0; i--) {
		p += stride;
		const uint4 w = next;
		if (i > 1) {
			next = p[stride]; // on its way while the sums are multiplied
		}
		sum.x = timesK(table, sum.x) ^ w.x;
		sum.y = timesK(table, sum.y) ^ w.y;
		sum.z = timesK(table, sum.z) ^ w.z;
		sum.w = timesK(table, sum.w) ^ w.w;
	}
	return timesX32(timesX32(timesX32(sum.x) ^ sum.y) ^ sum.z) ^ sum.w;
}

} // namespace

// crc32c sums n bytes at p. k is x^(128 stride) mod P. out gets a sum for each
// block, then the bytes before the first 16-byte boundary, at most 15, in 16
// bytes, and those behind the last one. A block has 256 threads.
extern "C" __global__ void __launch_bounds__(threads, 6) crc32c(const unsigned char *p, u64 n, u32 k, u32 *out) {
	__shared__ u32 table[rows][32];
	__shared__ u32 warps[threads / 32];
	constexpr u32 powers[] = {CRC32C_POWERS};

	u64 head = (0 - (u64)p) % 16;
	head = head < n ? head : n;
	const u64 whole = (n - head) / 16, tail = (n - head) % 16;
	fill(table, k);
	u32 sum = groups((const uint4 *)(p + head), whole, table);

	const u32 lane = threadIdx.x % 32;
#pragma unroll
	for (u32 i = 0; i < 5; i++) {
		sum ^= times(__shfl_down_sync(~0u, sum, 1 << i), powers[i]);
	}
	if (lane == 0) {
		warps[threadIdx.x / 32] = sum;
	}
	__syncthreads();
	if (threadIdx.x >= 32) {
		return;
	}
	sum = lane < threads / 32 ? warps[lane] : 0;
#pragma unroll
	for (u32 i = 5; i < 8; i++) {
		sum ^= times(__shfl_down_sync(~0u, sum, 1 << (i - 5)), powers[i]);
	}
	if (lane == 0) {
		out[blockIdx.x] = sum;
	}
	unsigned char *ends = (unsigned char *)(out + gridDim.x);
	if (blockIdx.x == 0 && lane < 16) {
		ends[lane] = lane < head ? p[lane] : 0;
		ends[16 + lane] = lane < tail ? p[head + whole * 16 + lane] : 0;
	}
}
