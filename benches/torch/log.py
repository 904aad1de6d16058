"""Two events per op. A small recording comes first, which makes the bridge: it is compiled at most
once. `log` is our part of what happens when the profiler stops, and `stop` the rest."""

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
