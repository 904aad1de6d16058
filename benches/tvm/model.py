"""Runs a transformer of two blocks on the stock TVM, like a program that does not know about the
profiler, and prints the median time of a run. The blocks have sequence length 64, width 128 and 4 heads."""

import statistics
import sys
import time

sys.path.insert(0, sys.argv[1])

import models  # noqa: E402
import tvm  # noqa: E402

WARM_UP, RUNS = 10, 80

mod, entry, arrays = models.exported(
    models.Transformer(2, joint=False, sequence=64, width=128), (1, 64, 128)
)
vm = models.machine(mod)
run, arguments = vm[entry], models.tensors(arrays)
times = []
for i in range(WARM_UP + RUNS):
    begin = time.perf_counter_ns()
    run(*arguments)
    times.append(time.perf_counter_ns() - begin)
print("run", statistics.median(times[WARM_UP:]) / 1e6, "ms")
