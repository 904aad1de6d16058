"""Runs a Triton kernel on PyTorch's tensors, and prints a sum."""

import sys

import torch
import triton
import triton.language as tl


@triton.jit
def double_plus_one(x_pointer, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_pointer + at, mask=at < n)
    tl.store(x_pointer + at, 2 * x + 1, mask=at < n)


def main() -> int:
    x = torch.arange(1000, device="cuda", dtype=torch.float32)
    for _ in range(3):
        double_plus_one[(triton.cdiv(1000, 256),)](x, 1000, BLOCK=256)
    print("sum", x.sum().item())
    return 6


sys.exit(main())
