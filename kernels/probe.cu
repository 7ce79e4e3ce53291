// The kernels of the tests and benchmarks: the least work that shows order, time and faults.
//
// Thread i touches element i alone, or in a matrix row i, but for `delay`, which has one thread, and the
// last two, which are wrong on purpose.

static __device__ unsigned item() { return blockIdx.x * blockDim.x + threadIdx.x; }

static __device__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds) : : "memory");
    return nanoseconds;
}

// Returns at once; takes two buffers and a scalar so that a launch costs what a usual one does.
extern "C" __global__ void empty(const float *, float *, unsigned) {}

// The same with what a task of a stencil grid takes: a cell, its four neighbours, and the next cell.
extern "C" __global__ void empty_stencil(const float *, const float *, const float *, const float *,
                                         const float *, float *, unsigned) {}

// One thread: keeps its multiprocessor for at least `nanoseconds`, then adds 1 to n elements.
extern "C" __global__ void delay(unsigned *witness, unsigned n, unsigned long long nanoseconds) {
    if (item() == 0) {
        unsigned long long start = now();
        while (now() - start < nanoseconds) {
        }
        for (unsigned i = 0; i < n; ++i) witness[i] += 1;
    }
}

// out[i] = a[i] + b[i]
extern "C" __global__ void add(const float *a, const float *b, float *out, unsigned n) {
    unsigned i = item();
    if (i < n) out[i] = a[i] + b[i];
}

// x[i] = x[i] + 1, wrapping
extern "C" __global__ void increment(unsigned *x, unsigned n) {
    unsigned i = item();
    if (i < n) x[i] += 1;
}

// to[i] = from[i]
extern "C" __global__ void copy_u32(const unsigned *from, unsigned *to, unsigned n) {
    unsigned i = item();
    if (i < n) to[i] = from[i];
}

// out[i] = a[i] + b[i], wrapping
extern "C" __global__ void add_u32(const unsigned *a, const unsigned *b, unsigned *out,
                                   unsigned n) {
    unsigned i = item();
    if (i < n) out[i] = a[i] + b[i];
}

// x[i][j] = factor * x[i][j], of a matrix with `stride` elements from row to row
extern "C" __global__ void scale_rows(float *x, unsigned rows, unsigned columns, unsigned stride,
                                      float factor) {
    unsigned i = item();
    if (i >= rows) return;
    for (unsigned j = 0; j < columns; ++j) x[(unsigned long long)i * stride + j] *= factor;
}

// to[i] = from[i][0] + … + from[i][columns - 1], wrapping; `to` is a column of another matrix, or of
// the same one
extern "C" __global__ void sum_rows(const unsigned *from, unsigned rows, unsigned columns,
                                    unsigned stride, unsigned *to, unsigned to_stride) {
    unsigned i = item();
    if (i >= rows) return;
    unsigned sum = 0;
    for (unsigned j = 0; j < columns; ++j) sum += from[(unsigned long long)i * stride + j];
    to[(unsigned long long)i * to_stride] = sum;
}

// Fails with CUDA_ERROR_LAUNCH_FAILED or CUDA_ERROR_ILLEGAL_INSTRUCTION, whichever the driver
// makes of a trap, where n > 0.
extern "C" __global__ void trap(unsigned *x, unsigned n) {
    if (item() < n) {
        x[item()] = 0;
        __trap();
    }
}

// Fails with CUDA_ERROR_ILLEGAL_ADDRESS where n > 0: 4 TiB past x there is no memory.
extern "C" __global__ void out_of_bounds(unsigned *x, unsigned n) {
    if (item() < n) x[(1ull << 40) + item()] = 1;
}
