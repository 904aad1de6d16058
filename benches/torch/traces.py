"""Measures how long PyTorch's profiler takes to export a trace of 500,000 ops, with two events each.
A short recording is exported first, so that the measured time does not include what torch initializes
at first use."""

import sys, time
import torch
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
x = torch.ones(1)
def record(count):
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        for _ in range(count):
            torch.relu(x)
    return recorded
record(100).export_chrome_trace(sys.argv[1])
recorded = record(500_000)
start = time.perf_counter()
recorded.export_chrome_trace(sys.argv[1])
print("export", (time.perf_counter() - start) * 1e3, "ms")
