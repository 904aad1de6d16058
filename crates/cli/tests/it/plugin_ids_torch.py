"""Calls ops of PyTorch that launch kernels of the test plugin."""

import ctypes, os
import torch

library = ctypes.CDLL(os.environ["ACCELERATOR"])
ops = torch.library.Library("accelerator", "DEF")
ops.define("twice(Tensor x) -> Tensor")
ops.define("once(Tensor x) -> Tensor")

def twice(x):
    library.accelerator_launch(b"k of accelerator::twice")
    y = x + x
    library.accelerator_launch(b"k of accelerator::twice")
    return y

def once(x):
    library.accelerator_launch(b"k of accelerator::once")
    return x.clone()

ops.impl("twice", twice, "CPU")
ops.impl("once", once, "CPU")

x = torch.ones(4)
for _ in range(3):
    x = torch.ops.accelerator.once(torch.ops.accelerator.twice(x).relu())
assert float(x.sum()) == 32
