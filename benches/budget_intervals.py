"""Says how often the confidence intervals from recordings with a budget contain the values from full
runs of the same program, as lines `NAME VALUE UNIT`.

    budget_intervals.py replay REPLAYS TEST COUNTERPOINT FOLDER PROGRAM ARGUMENTS...
    budget_intervals.py direct FULL_RUNS COUNTERPOINT FOLDER PROGRAM ARGUMENTS...

`replay` records the program once in full, with `task-clock`. Then the code of the crate `agent` chooses
some of the recorded calls at random, REPLAYS times. TEST is the crate's test executable, which does
this; the header of `crates/agent/src/recorder/budget/replay.rs` describes it.

`direct` records the program FULL_RUNS times in full, and once with each budget. Full runs of the same
program differ from each other. So this script widens the interval of each op's mean per call. One
more full run may differ from the mean of the n full runs by t · s · √(1 + 1/n), where s is the
standard deviation of the full runs and t is from the table T. The new half-width is the square root
of the sum of the squares of this value and the old half-width.

FOLDER is for files that may be overwritten.
"""

import collections
import csv
import json
import math
import os
import pathlib
import random
import statistics
import subprocess
import sys

BUDGETS = ["1%", "2%", "5%", "10%"]
# The 0.975 quantile of Student's t distribution, for 1 to 15 degrees of freedom.
T = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131]
TEST_NAME = "recorder::budget::replay::intervals_hold_the_totals_of_recorded_programs"
# Ops with fewer calls are left out, because almost all of their calls are timed.
FEWEST_CALLS = 100


def record(counterpoint, profile, options, command):
    command = [counterpoint, "run", *options, "-o", profile, "--", *command]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)


def recording(counterpoint, profile, path):
    """Writes the calls of a profile to `path`, for `replay.rs`, and returns the names of the ops."""
    exported = path.with_suffix(".csv")
    command = [counterpoint, "export", profile, "--format", "csv", "-o", str(exported)]
    subprocess.run(command, check=True)
    threads, ops = collections.defaultdict(list), {}
    with open(exported, newline="") as file:
        for row in csv.DictReader(file):
            # Only calls with these roles are sampled one by one.
            if row.get("role", "workgroup") not in ("workgroup", "op", ""):
                continue
            op = ops.setdefault(row["op"], len(ops))
            start, duration = int(row["start_ns"]), round(float(row["duration_ns"]))
            threads[row["process"], row["thread"]].append((start, op, duration, row["task-clock"]))
    with open(path, "w") as file:
        for number, calls in enumerate(threads.values()):
            calls.sort()
            over = calls[0][0]
            for start, op, duration, counted in calls:
                print(number, op, max(start - over, 0), duration, counted or 0, file=file)
                over = start + duration
    exported.unlink()
    return list(ops)


def replay(replays, test, counterpoint, folder, *command):
    profile, path = str(folder / "full.cpt"), folder / "recording.txt"
    record(counterpoint, profile, ["-e", "task-clock"], command)
    names = recording(counterpoint, profile, path)
    result = folder / "replayed.txt"
    environment = os.environ | {
        "COUNTERPOINT_TEST_RECORDING": str(path),
        "COUNTERPOINT_TEST_RESULT": str(result),
        "COUNTERPOINT_TEST_REPLAYS": replays,
        "COUNTERPOINT_TEST_SEED": str(random.getrandbits(32)),
    }
    subprocess.run([test, "--exact", TEST_NAME], stdout=subprocess.DEVNULL, env=environment, check=True)
    for number, name in enumerate(names):
        print(f"# op{number} {name}")
    print(result.read_text(), end="")


def rows(counterpoint, profile):
    """Returns each op's number of calls and the interval of its mean per call (None if there is no
    interval)."""
    command = [counterpoint, "report", "--format", "json", profile]
    report = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    drawn = [row for row in report["rows"] if row.get("role", "workgroup") in ("workgroup", "op")]
    return {row["op"]: (row["calls"], row.get("intervals", {}).get("mean_ns")) for row in drawn}


def direct(full_runs, counterpoint, folder, *command):
    profile, full, drawn = str(folder / "run.cpt"), collections.defaultdict(list), []
    runs = [None] * int(full_runs) + BUDGETS
    random.shuffle(runs)
    for budget in runs:
        record(counterpoint, profile, ["-e", "none"] + (["--budget", budget] if budget else []), command)
        for op, (calls, mean) in rows(counterpoint, profile).items():
            if budget is None:
                full[op].extend([mean["value"]] if mean else [])
            elif calls >= FEWEST_CALLS:
                drawn.append((budget, op, calls, mean))
    held = collections.defaultdict(list)
    for budget, op, calls, mean in drawn:
        values = full[op]
        if mean is None or len(values) < int(full_runs):
            held[budget, "unknown"].append(1)
            continue
        held[budget, "unknown"].append(0)
        n, truth = len(values), statistics.fmean(values)
        other = T[n - 2] * statistics.stdev(values) * math.sqrt(1 + 1 / n)
        low = mean["value"] - math.hypot(mean["value"] - mean["low"], other)
        high = mean["value"] + math.hypot(mean["high"] - mean["value"], other)
        held[budget, "held"].append(low <= truth <= high)
        held[budget, "interval-alone"].append(mean["low"] <= truth <= mean["high"])
        held[budget, "difference"].append(mean["value"] / truth - 1)
        print(f"# {budget} {op} {calls} calls: {mean}, full {truth} ± {other}")
    for (budget, what), found in held.items():
        print(f"{budget}.{what} {statistics.fmean(found)} part")
    for what in ("held", "interval-alone"):
        every = [one for (_, name), found in held.items() if name == what for one in found]
        print(f"all.{what} {statistics.fmean(every)} part")


mode, number, *rest = sys.argv[1:]
if mode == "replay":
    test, counterpoint, folder, *command = rest
    replay(number, test, counterpoint, pathlib.Path(folder), *command)
else:
    counterpoint, folder, *command = rest
    direct(number, counterpoint, pathlib.Path(folder), *command)
