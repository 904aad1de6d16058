"""Measures what recording adds to each op of PyTorch.

    ops.py PACKAGE NOOP COUNTERS

Calls a small op in turn in these cases:

    bare    without an observer
    noop    with a native observer that does nothing
    inputs  with a native observer that does nothing, but gets the arguments of ops
    reads   with a native observer that only reads a group of COUNTERS counters twice
    ours    with Counterpoint's observer, while a run records
    shapes  with Counterpoint's observer, which also records shapes

Prints nanoseconds of processor time per op: medians of 400 turns.
"""

import ctypes
import statistics
import sys
import time

sys.path.insert(0, sys.argv[1])

import torch  # noqa: E402
from counterpoint.torch import _ops  # noqa: E402

CALLS = 400
TURNS = 400


def main():
    torch.set_num_threads(1)
    noop = ctypes.CDLL(sys.argv[2])
    counters = int(sys.argv[3])
    ops = _ops.connect()
    x = torch.ones(1)
    cases = {
        "bare": (lambda: None, lambda: None),
        "noop": (noop.noop_on, noop.noop_off),
        "inputs": (noop.inputs_on, noop.noop_off),
        "reads": (lambda: noop.reads_on(counters), noop.noop_off),
        "ours": (lambda: ops.start(False), lambda: ops.stop(False)),
        "shapes": (lambda: ops.start(True), lambda: ops.stop(True)),
    }
    if counters == 0:
        del cases["reads"]
    times = {name: [] for name in cases}
    calls = range(CALLS)
    op = x.neg_
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as prof:
        op()
    names = [e.name() for e in prof.profiler.kineto_results.events()]
    assert names == ["aten::neg_"], names
    for turn in range(TURNS + 2):
        for name, (on, off) in cases.items():
            on()
            op()
            start = time.thread_time_ns()
            for _ in calls:
                op()
            spent = (time.thread_time_ns() - start) / CALLS
            off()
            if turn >= 2:
                times[name].append(spent)
    for name, all_of_it in times.items():
        print(f"{name} {statistics.median(all_of_it):.1f} ns")


main()
