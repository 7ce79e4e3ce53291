// The kernels of the examples: slow and simple arithmetic, to have something to overlap.
//
// Thread i touches element i alone, in every kernel, or of a column row i. Their Rust twins are compared with them bit
// for bit, so multiplications and additions are not fused (--fmad=false).

static __device__ unsigned item() { return blockIdx.x * blockDim.x + threadIdx.x; }

// out[i] = in[i] after `rounds` times v * 0.99 + 0.01 in single precision. The two may be the same.
extern "C" __global__ void work(const float *in, float *out, unsigned n, unsigned rounds) {
    unsigned i = item();
    if (i < n) {
        float v = in[i];
        for (unsigned round = 0; round < rounds; ++round) v = v * 0.99f + 0.01f;
        out[i] = v;
    }
}

// x[i] after `rounds` times v * 0.999 + 0.001 in double precision, rounded once at the end.
extern "C" __global__ void busy(float *x, unsigned n, unsigned rounds) {
    unsigned i = item();
    if (i < n) {
        double v = x[i];
        for (unsigned round = 0; round < rounds; ++round) v = v * 0.999 + 0.001;
        x[i] = (float)v;
    }
}

// x[i] = value
extern "C" __global__ void set_value(float *x, unsigned n, float value) {
    unsigned i = item();
    if (i < n) x[i] = value;
}

// x[i] = x[i] * x[i]
extern "C" __global__ void square(float *x, unsigned n) {
    unsigned i = item();
    if (i < n) x[i] = x[i] * x[i];
}

// x[i] after `rounds` steps of a xorshift generator. Each step is a permutation, so every bit counts.
extern "C" __global__ void mix(unsigned *x, unsigned n, unsigned rounds) {
    unsigned i = item();
    if (i < n) {
        unsigned v = x[i];
        for (unsigned round = 0; round < rounds; ++round) {
            v ^= v << 13;
            v ^= v >> 17;
            v ^= v << 5;
        }
        x[i] = v;
    }
}

// x[i * stride] after `rounds` times v + weights[i], each addition in need of the one before it: a column
// of a matrix with `stride` elements from row to row.
extern "C" __global__ void accumulate(float *x, unsigned rows, unsigned stride, const float *weights,
                                      unsigned rounds) {
    unsigned i = item();
    if (i < rows) {
        float v = x[(unsigned long long)i * stride];
        for (unsigned round = 0; round < rounds; ++round) v = v + weights[i];
        x[(unsigned long long)i * stride] = v;
    }
}
