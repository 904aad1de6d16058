"""Measures what idle plugins add to PyTorch's own profiler.

    plugins.py PACKAGE CHILD

The folder in KINETO_PLUGIN_LIB_DIR_PATH has two plugins, made from idle.c. One supports kernels. The other
supports gpu_memset and takes the ids of ops. The variable COUNTERPOINT_TORCH_KINDS chooses which of them
takes part in a recording: neither, the first, or the second. CHILD is the child profiler of child.cpp, which
takes part only in the case `empty`. Each case records 500,000 small ops, in 20 turns. Prints two wall times
per op (medians of the turns): of the recording, and of what torch does when the recording stops. `entry` is
the time that the package's entry point takes before torch is imported, if no environment variable asks for a
recording.
"""

import ctypes
import gc
import os
import statistics
import sys
import time

sys.path.insert(0, sys.argv[1])

OPS = 25_000
TURNS = 20
KINDS = {"bare": "cpu_op", "empty": "cpu_op", "idle": "kernel", "ids": "gpu_memset"}


def entry_ms():
    folder = os.environ.pop("KINETO_PLUGIN_LIB_DIR_PATH")
    start = time.perf_counter()
    from counterpoint.torch import _entry

    _entry.autoload()
    spent = time.perf_counter() - start
    os.environ["KINETO_PLUGIN_LIB_DIR_PATH"] = folder
    return spent * 1e3


def main():
    entry = entry_ms()
    os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    import torch
    from counterpoint.torch import _load
    from torch.profiler import ProfilerActivity, profile

    if not _load.begin("plugins"):
        sys.exit("plugins are not connected")
    child = ctypes.CDLL(sys.argv[2])
    child.child_begin()
    torch.set_num_threads(1)
    x = torch.ones(1)

    def turn():
        calls = range(OPS)
        add = x.add_
        with profile(activities=[ProfilerActivity.CPU]):
            start = time.perf_counter()
            for _ in calls:
                add(1.0)
            recorded = time.perf_counter()
        return (recorded - start) / OPS * 1e9, (time.perf_counter() - recorded) / OPS * 1e9

    times = {name: [] for name in KINDS}
    gc.disable()
    for number in range(TURNS + 1):
        # Each kind comes first equally often.
        names = list(KINDS)
        names = names[number % len(names) :] + names[: number % len(names)]
        for name in names:
            os.environ["COUNTERPOINT_TORCH_KINDS"] = KINDS[name]
            child.child_takes_part(name == "empty")
            spent = turn()
            if number > 0:
                times[name].append(spent)
        gc.collect()
    for name, turns in times.items():
        print(f"{name} {statistics.median(t[0] for t in turns):.1f} ns")
        print(f"{name}-stop {statistics.median(t[1] for t in turns):.1f} ns")
    print(f"entry {entry:.3f} ms")


main()
