"""Says what `counterpoint diff` finds between two programs, as lines `NAME VALUE UNIT`.

    diff.py SERIES PAIRS hyperfine|alone COUNTERPOINT FOLDER PROGRAM_A... -- PROGRAM_B...

Records SERIES series of PAIRS pairs of runs (A and B), as `counterpoint run --against` does, and prints means
over the series. The means say in what fraction of the series `diff` called something different, and what
fraction of the verdicts were "same" or "unknown". For the op with the longest total time, the means say how
often `diff` called the op slower, how much the op changed, and how much the pairs of runs vary (a standard
deviation of logarithms).

With `hyperfine`, after each series, hyperfine times PAIRS runs of A, and then PAIRS runs of B, without a profiler. Hyperfine
prints a ratio with a deviation ("1.05 ± 0.02 times faster"). The programs count as different if 1 is outside
of this range. FOLDER is for files that may be overwritten.
"""

import json
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys

DIFFERENT = ("slower", "faster")


def main(count, pairs, peer, counterpoint, folder, *programs):
    split = programs.index("--")
    a, b = programs[:split], programs[split + 1 :]
    found = []
    for _ in range(int(count)):
        readings = series(pairs, counterpoint, folder, a, b)
        if peer == "hyperfine":
            readings |= hyperfine(pairs, folder, a, b)
        found.append(readings)
    for name, unit in found[0]:
        values = [readings[name, unit] for readings in found]
        print(f"{name} {statistics.mean(values):.5f} {unit}")


def series(pairs, counterpoint, folder, a, b):
    """Records one series."""
    path = os.path.join(folder, "diff.series")
    for old in (path, path + ".old"):
        shutil.rmtree(old, ignore_errors=True)
    command = [counterpoint, "run", "-e", "none", "--repeat", pairs, "-o", path]
    command += ["--against", shlex.join(b), "--", *a]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    command = [counterpoint, "diff", path, "--format", "json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    print(f"# {found['answer']} (load {os.getloadavg()[0]:.1f})")
    rows = found["rows"]
    verdicts = [row["verdict"] for row in rows] + [found["whole"]["verdict"]]
    biggest = max(rows, key=lambda row: (row["sides"][0] or {}).get("total_ns") or 0)
    readings = {
        ("any-difference", "of-1"): any(verdict in DIFFERENT for verdict in verdicts),
        ("same", "of-all"): verdicts.count("same") / len(verdicts),
        ("unknown", "of-all"): verdicts.count("unknown") / len(verdicts),
        ("biggest-slower", "of-1"): biggest["verdict"] == "slower",
        ("elsewhere", "of-1"): any(row["verdict"] in DIFFERENT for row in rows if row is not biggest),
    }
    readings["whole-slower", "of-1"] = found["whole"]["verdict"] == "slower"
    for statistic in biggest["statistics"]:
        name = f"biggest-{statistic['statistic']}"
        readings[f"{name}-change", "of-A"] = statistic["change"]
        readings[f"{name}-spread", "of-A"] = statistic["deviation"] or 0
    return readings


def hyperfine(runs, folder, a, b):
    path = os.path.join(folder, "hyperfine.json")
    command = ["hyperfine", "-N", "--style", "none", "--warmup", "1", "--runs", runs, "--export-json", path]
    done = subprocess.run(
        [*command, shlex.join(a), shlex.join(b)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    if done.returncode != 0:
        sys.exit(done.stderr)
    with open(path) as file:
        of_a, of_b = json.load(file)["results"]
    fast, slow = sorted((of_a, of_b), key=lambda one: one["mean"])
    ratio = slow["mean"] / fast["mean"]
    deviation = ratio * math.hypot(slow["stddev"] / slow["mean"], fast["stddev"] / fast["mean"])
    is_different = ratio - deviation > 1
    return {
        ("hyperfine-difference", "of-1"): is_different,
        ("hyperfine-slower", "of-1"): is_different and slow is of_b,
        ("hyperfine-change", "of-A"): of_b["mean"] / of_a["mean"] - 1,
    }


if __name__ == "__main__":
    main(*sys.argv[1:])
