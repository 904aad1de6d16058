"""Runs a program alone or under `counterpoint run`. Prints the program's times and the cost of recording
that the report states, as lines `NAME VALUE UNIT`.

    price.py alone PROGRAM ARGUMENTS...
    price.py RUN COUNTERPOINT PROFILE PROGRAM ARGUMENTS...

RUN contains all arguments of `counterpoint run`, separated by spaces.

The program prints Google Benchmark's JSON. `cpu` is the processor time of the program's whole process,
which the kernel reports when the process has ended (`wait4`). It does not include what `counterpoint
run` itself does before and after. `wall` is how long that process lived. `calls-cpu` is the processor
time of all inferences, as the program itself measures it.

`stated` is the cost that the report states for the whole process. `low` and `high` are the ends of the
confidence interval of this cost. `stated-calls` is the part of the cost that grows with the number of
calls.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

NS = {"ns": 1.0, "us": 1e3, "ms": 1e6, "s": 1e9}
CALLS = ["probes", "counting", "after_readings", "way", "waiting", "switches", "flush"]


def wait(result, command):
    """Runs the program as a child of this process, and writes the child's times to the file `result`."""
    begun = time.monotonic_ns()
    child = os.posix_spawnp(command[0], command, os.environ)
    _, status, used = os.wait4(child, 0)
    cpu = (used.ru_utime + used.ru_stime) * 1e9
    with open(result, "w") as file:
        json.dump({"cpu": cpu, "wall": time.monotonic_ns() - begun}, file)
    sys.exit(os.waitstatus_to_exitcode(status))


def used(process, found):
    scale = NS[found["time_unit"]]
    yield "cpu", process["cpu"], "ns"
    yield "wall", process["wall"], "ns"
    yield "inference-wall", found["real_time"] * scale, "ns"
    yield "calls-cpu", found["cpu_time"] * scale * found["iterations"], "ns"


def stated(counterpoint, profile):
    report = [counterpoint, "report", "--format", "json", profile]
    probe = json.loads(subprocess.run(report, stdout=subprocess.PIPE, check=True).stdout)["probe"]
    value = {name: part["value"] for name, part in probe["parts"].items() if part}
    yield "stated", probe["total"]["value"], "ns"
    yield "low", probe["total"]["low"], "ns"
    yield "high", probe["total"]["high"], "ns"
    yield "stated-calls", sum(value.get(part, 0.0) for part in CALLS), "ns"
    for part, ns in value.items():
        yield "part-" + part.replace("_", "-"), ns, "ns"
    yield "calls", probe["calls"], "calls"
    yield "switch-count", probe["switches"], "switches"
    yield "per-call", probe["per_call_ns"], "ns"
    yield "calibrated", probe["calibrated_per_call_ns"], "ns"


def benchmark(before, command):
    with tempfile.NamedTemporaryFile("r", suffix=".json") as result:
        waiting = [sys.executable, "-E", os.path.abspath(__file__), "wait", result.name]
        done = subprocess.run(before + waiting + command, stdout=subprocess.PIPE, check=True)
        process = json.load(result)
    found = json.loads(done.stdout[done.stdout.index(b"{") :])["benchmarks"][0]
    yield from used(process, found)


def main():
    if sys.argv[1] == "wait":
        wait(sys.argv[2], sys.argv[3:])
    if sys.argv[1] == "alone":
        all = list(benchmark([], sys.argv[2:]))
    else:
        arguments, counterpoint, profile = sys.argv[1:4]
        before = [counterpoint, "run", *arguments.split(), "-o", profile, "--"]
        all = [*benchmark(before, sys.argv[4:]), *stated(counterpoint, profile)]
    for name, value, unit in all:
        print(f"{name} {value} {unit}")


if __name__ == "__main__":
    main()
