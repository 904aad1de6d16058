"""Runs a program with `iree-benchmark-module`, alone or under `counterpoint run`, and prints what the
report says that recording cost, as lines `NAME VALUE UNIT`.

    price.py alone TOOL ARGUMENTS...
    price.py EVENTS COUNTERPOINT PROFILE TOOL ARGUMENTS...

`cpu` is the CPU time of the whole process per inference, as the program itself measures it. It does
not include the program's start, nor what `counterpoint run` does before and after. `stated` is the
factor by which the report says that the threads use more CPU time; accordingly, it does not include
the start of threads.
"""

import json
import subprocess
import sys


def benchmark(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    found = json.loads(done.stdout)["benchmarks"][0]
    scale = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}[found["time_unit"]]
    print(f"cpu {found['cpu_time'] * scale} ns")
    print(f"real {found['real_time'] * scale} ns")


if sys.argv[1] == "alone":
    benchmark(sys.argv[2:])
else:
    events, counterpoint, profile = sys.argv[1:4]
    benchmark([counterpoint, "run", "-e", events, "-o", profile, "--", *sys.argv[4:]])
    report = [counterpoint, "report", "--format", "json", profile]
    probe = json.loads(subprocess.run(report, stdout=subprocess.PIPE, check=True).stdout)["probe"]
    ours = probe["probes_ns"] + (probe["switches_ns"] or 0.0)
    lasting = ours + probe["flush_ns"]
    print(f"stated {1 + lasting / (probe['cpu_ns'] - ours)} ratio")
    for part in ["probes_ns", "switches_ns", "flush_ns", "attach_ns", "cpu_ns"]:
        print(f"report-{part.removesuffix('_ns')} {probe[part] or 0.0} ns")
    print(f"switch-count {probe['switches']} switches")
    print(f"per-call {probe['per_call_ns']} ns")
    print(f"calibrated {probe['calibrated_per_call_ns']} ns")
