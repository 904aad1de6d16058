"""Runs elementwise operations, a reduction, a raw kernel and a matrix product with CuPy, and prints a sum."""

import sys

import cupy

RAW = cupy.RawKernel(
    'extern "C" __global__ void raw_add(float *x, int n)'
    "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] += 1.0f; }",
    "raw_add",
)


@cupy.fuse(kernel_name="fused_square_plus")
def fused(x: cupy.ndarray) -> cupy.ndarray:
    return x * x + 1


def main() -> int:
    x = cupy.arange(4096, dtype=cupy.float32) % 16
    for _ in range(3):
        RAW((16,), (256,), (x, cupy.int32(x.size)))
    y = fused(x)
    square = cupy.ones((64, 64), dtype=cupy.float32)
    print("sum", float(y.sum()) + float((square @ square).sum()))
    return 4


sys.exit(main())
