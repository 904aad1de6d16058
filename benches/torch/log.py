"""Measures how long PyTorch's profiler takes to stop a recording of 500,000 ops, and to export it. A
small recording is made first, so that the measured times do not include compiling the bridge to PyTorch.
`log` is the time that Counterpoint's part of the stop takes, and `stop` is the time of the rest. Each op
makes two events."""

import sys, time
import torch
from counterpoint.torch import _log
from torch.profiler import ProfilerActivity, profile
torch.set_num_threads(1)
x = torch.ones(1)
spent = []
take_over = _log.taken_over
def timed(*arguments):
    start = time.perf_counter()
    try:
        return take_over(*arguments)
    finally:
        spent.append((time.perf_counter() - start) * 1e3)
_log.taken_over = timed
def record(count):
    recorded = profile(activities=[ProfilerActivity.CPU])
    recorded.start()
    for _ in range(count):
        torch.relu(x)
    start = time.perf_counter()
    recorded.stop()
    return recorded, (time.perf_counter() - start) * 1e3
record(100)[0].export_chrome_trace(sys.argv[1])
recorded, stop = record(500_000)
assert len(spent) == 2
start = time.perf_counter()
recorded.export_chrome_trace(sys.argv[1])
print("export", (time.perf_counter() - start) * 1e3, "ms")
print("log", spent[1], "ms")
print("stop", stop - spent[1], "ms")
