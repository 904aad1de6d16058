"""Says what `counterpoint diff` finds between two programs, as lines `NAME VALUE UNIT`.

    diff.py SERIES PAIRS COUNTERPOINT FOLDER PROGRAM_A... -- PROGRAM_B...

Records so many series of so many pairs in random order, as a user would, and prints means over the series:
in how many something was called different, the part of the rows that were called the same or unknown, what
was said of the op with the longest total, its change, and the spread of its pairs (a standard deviation of
logarithms). FOLDER is for files that may be overwritten.
"""

import json
import os
import shlex
import shutil
import statistics
import subprocess
import sys

DIFFERENT = ("slower", "faster")


def main(count, pairs, counterpoint, folder, *programs):
    split = programs.index("--")
    a, b = programs[:split], programs[split + 1 :]
    found = [series(pairs, counterpoint, folder, a, b) for _ in range(int(count))]
    for name, unit in found[0]:
        values = [readings[name, unit] for readings in found]
        print(f"{name} {statistics.mean(values):.5f} {unit}")


def series(pairs, counterpoint, folder, a, b):
    """Records one series, and returns its readings by name and unit."""
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
    for statistic in biggest["statistics"]:
        name = f"biggest-{statistic['statistic']}"
        readings[f"{name}-change", "of-A"] = statistic["change"]
        readings[f"{name}-spread", "of-A"] = statistic["deviation"] or 0
    return readings


if __name__ == "__main__":
    main(*sys.argv[1:])
