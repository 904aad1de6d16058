"""Marks kernels with NVTX. Five times, a range `outer` contains a range `inner` and a mark `here`. Prints a sum."""

import sys

import torch

x = torch.ones(1 << 20, device="cuda")
for _ in range(5):
    torch.cuda.nvtx.range_push("outer")
    torch.cuda.nvtx.range_push("inner")
    x = x * 1.5
    torch.cuda.nvtx.range_pop()
    torch.cuda.nvtx.mark("here")
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()
print(f"sum {float(x.sum()):.0f}")
sys.exit(8)
