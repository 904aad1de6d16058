"""Runs functions of known length under `counterpoint run`, several times. Prints how often the true length of
a function is outside of the interval that the report states for the function's mean without the recorder's
cost, as lines `NAME VALUE UNIT`.

    resolution.py RUNS EVENTS KIB COUNTERPOINT HOST LIBRARY PROFILE

HOST is `tests/programs/resolution.c`, which measures the true length of each function without the recorder.
HOST measures other calls than those that are recorded. So HOST also prints how much the means of the two sets
of calls may differ for this reason alone. This script widens the report's interval by that value: the new
half-width is the square root of the sum of the squares of the value and the old half-width. The true value of
`task-clock` is the same length, because the functions never wait.
"""

import json
import math
import subprocess
import sys

runs, events, kib, counterpoint, host, library, profile = sys.argv[1:8]
outside, differences = {}, {}


def check(name, interval, truth, half):
    low = interval["value"] - math.hypot(interval["value"] - interval["low"], half)
    high = interval["value"] + math.hypot(interval["high"] - interval["value"], half)
    outside.setdefault(name, []).append(not low <= truth <= high)
    differences.setdefault(name, []).append(interval["value"] - truth)


for _ in range(int(runs)):
    command = [counterpoint, "run", "-e", events, "-o", profile, "--", host, library, kib]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    command = [counterpoint, "report", "--format", "json", profile]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    rows = {row["op"]: row for row in report["rows"]}
    for line in done.stdout.splitlines():
        name, truth, half, _ = line.split()
        row = rows[name]
        check(name, row["intervals"]["mean_ns"], float(truth), float(half))
        for counter in row["counters"]:
            check(f"{name}.{counter['name']}", counter["intervals"]["per_call"], float(truth), float(half))

for name, found in outside.items():
    print(f"{name}.outside {sum(found) / len(found)} part")
    print(f"{name}.difference {sum(differences[name]) / len(differences[name])} ns")
every = [one for found in outside.values() for one in found]
print(f"all.outside {sum(every) / len(every)} part")
