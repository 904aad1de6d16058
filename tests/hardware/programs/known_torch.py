"""Calls two ops of PyTorch, `known::loop_10000` and `known::loop_100000`. Each calls the loop of known.c, whose number
of instructions is known.

    known_torch.py LIBRARY ROUNDS"""

import ctypes
import sys

import torch

known = ctypes.CDLL(sys.argv[1])
library = torch.library.Library("known", "DEF")
for n in (10_000, 100_000):
    library.define(f"loop_{n}(Tensor x) -> ()")

    def loop(_x, n=n):
        known.known_loop(ctypes.c_ulong(n))

    library.impl(f"loop_{n}", loop, "CPU")
x = torch.zeros(1)
for _ in range(int(sys.argv[2])):
    torch.ops.known.loop_10000(x)
    torch.ops.known.loop_100000(x)
print("done")
