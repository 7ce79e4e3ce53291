// Holds a stream back until the host lets it go: for tests of what waits for what.
//
// Words in page-locked memory, of which the host writes the first and the kernel the second:
//   words[0]  0 while the gate is closed
//   words[1]  1 once a launch has given up waiting; nobody but the host takes it back

static __device__ unsigned long long now() {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds) : : "memory");
    return nanoseconds;
}

// Acquire: what the host wrote before it opened the gate is seen by what comes after this kernel.
static __device__ unsigned read(const unsigned *word) {
    unsigned value;
    asm volatile("ld.acquire.sys.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

static __device__ void write(unsigned *word, unsigned value) {
    asm volatile("st.release.sys.u32 [%0], %1;" : : "l"(word), "r"(value) : "memory");
}

// One thread: returns when the gate is open, or after `nanoseconds`, so that no test hangs a GPU.
// Looks once more after its time is over: a gate that was open by then let it through.
extern "C" __global__ void gate(unsigned *words, unsigned long long nanoseconds) {
    if (blockIdx.x != 0 || threadIdx.x != 0) return;
    unsigned long long start = now();
    bool over = false;
    while (read(words) == 0) {
        if (over) {
            write(words + 1, 1);
            return;
        }
        over = now() - start >= nanoseconds;
    }
}
