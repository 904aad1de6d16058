"""Runs a program that prints Google Benchmark's JSON, alone or under `counterpoint run --budget`. Prints
the program's times and, under `--budget`, what the recorder did, as lines `NAME VALUE UNIT`.

    budget.py alone TOOL ARGUMENTS...
    budget.py BUDGET EVENTS COUNTERPOINT PROFILE TOOL ARGUMENTS...

`cpu` is the CPU time of the whole process per inference, as the program itself measures it. It does not
include the program's start, nor what `counterpoint run` does before and after. `reached` is the fraction
of the threads' CPU time that recording took, as the recorder estimates it. `calls` is the number of all
calls of ops. `timed` counts the calls that were timed, and `read` those whose counters were read.
"""

import json
import pathlib
import struct
import subprocess
import sys


def benchmark(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)["benchmarks"][0]
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[found["time_unit"]]
    print(f"cpu {found['cpu_time'] * scale} ns")
    print(f"real {found['real_time'] * scale} ns")


def counts(profile):
    """Yields each thread's CPU time, the part that recording took of it, and a row (number of the op,
    calls, timed calls, calls with read counters) for each op. docs/file-format.md describes
    `counts.cps`."""
    for file in pathlib.Path(profile).glob("processes/*/counts.cps"):
        data, at = file.read_bytes(), 0
        while at < len(data):
            length, kind, _, _ = struct.unpack_from("<IHHQ", data, at)
            if kind == 1:
                _, _, cpu, price, rows = struct.unpack_from("<IIQQI", data, at + 16)
                first = at + 16 + 28
                yield cpu, price, [struct.unpack_from("<IQQQ", data, first + 28 * i) for i in range(rows)]
            at += 16 + length


if sys.argv[1] == "alone":
    benchmark(sys.argv[2:])
else:
    budget, events, counterpoint, profile = sys.argv[1:5]
    options = ["--budget", budget, "-e", events, "-o", profile]
    benchmark([counterpoint, "run", *options, "--", *sys.argv[5:]])
    threads = list(counts(profile))
    rows = [row for _, _, rows in threads for row in rows]
    cpu = sum(cpu for cpu, _, _ in threads)
    print(f"reached {sum(price for _, price, _ in threads) / max(cpu, 1)} ratio")
    for name, column in [("calls", 1), ("timed", 2), ("read", 3)]:
        print(f"{name} {sum(row[column] for row in rows)} calls")
    timed, calls = sum(row[2] for row in rows), sum(row[1] for row in rows)
    print(f"timed-share {timed / max(calls, 1)} ratio")
