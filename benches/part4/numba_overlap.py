#!/usr/bin/env python3
"""The pipeline of `overlap` on ordinary arrays, with numba: what the benchmark part4 measures beside.

    numba_overlap.py CHUNKS LEN STREAMS

For each line of standard input it runs once, checks every element, and answers with microseconds.
The arithmetic is that of kernels/pipeline.cu: 500 rounds of v * 0.99 + 0.01 in float32, each operation rounded.
"""
import sys
import time

import numpy

# What numba asks for and newer releases of numpy call otherwise.
for gone, name in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(numpy, gone):
        setattr(numpy, gone, getattr(numpy, name))

from numba import cuda, float32

ROUNDS = 500


@cuda.jit(fastmath=False)
def work(source, target):
    i = cuda.grid(1)
    if i < source.size:
        v = source[i]
        for _ in range(ROUNDS):
            v = v * float32(0.99) + float32(0.01)
        target[i] = v


def main():
    chunks, length, count = map(int, sys.argv[1:])
    source = numpy.tile((numpy.arange(length) % 4096 / 4096).astype(numpy.float32), chunks)
    result = numpy.full(chunks * length, numpy.nan, numpy.float32)
    streams = [cuda.stream() for _ in range(count)]
    buffers = [(cuda.device_array(length, numpy.float32), cuda.device_array(length, numpy.float32)) for _ in streams]
    blocks = (length + 255) // 256
    expected = None
    for _ in sys.stdin:
        result.fill(numpy.nan)
        cuda.synchronize()
        start = time.perf_counter()
        for chunk in range(chunks):
            stream, (inward, outward) = streams[chunk % count], buffers[chunk % count]
            part = slice(chunk * length, (chunk + 1) * length)
            inward.copy_to_device(source[part], stream=stream)
            work[blocks, 256, stream](inward, outward)
            outward.copy_to_host(result[part], stream=stream)
        for stream in streams:
            stream.synchronize()
        took = time.perf_counter() - start
        if expected is None:
            v = source[:4096].copy()
            for _ in range(ROUNDS):
                v = v * numpy.float32(0.99) + numpy.float32(0.01)
            expected = v
        # Contraction to fused operations, where it is made, changes the last bits.
        assert numpy.allclose(result.reshape(-1, 4096), expected, rtol=1e-5), "wrong elements"
        print(took * 1e6, flush=True)


main()
