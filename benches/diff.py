"""Says what `counterpoint diff` finds between two programs, as lines `NAME VALUE UNIT`.

    diff.py PAIRS COUNTERPOINT FOLDER PROGRAM_A... -- PROGRAM_B...

Records a series of so many pairs in random order, as a user would, and prints for the whole and for its
rows how many were called different, the same, or unknown; and for each row the change, the spread of the
pairs (a standard deviation of logarithms) and the verdict. FOLDER is for files that may be overwritten.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys


def main(pairs, counterpoint, folder, *programs):
    split = programs.index("--")
    a, b = programs[:split], programs[split + 1 :]
    series = os.path.join(folder, "diff.series")
    for old in (series, series + ".old"):
        shutil.rmtree(old, ignore_errors=True)
    command = [counterpoint, "run", "-e", "none", "--repeat", pairs, "-o", series]
    command += ["--against", shlex.join(b), "--", *a]
    done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(done.stderr)
    command = [counterpoint, "diff", series, "--format", "json"]
    found = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    rows = found["rows"]
    verdicts = [row["verdict"] for row in rows] + [found["whole"]["verdict"]]
    differ = [verdict in ("slower", "faster") for verdict in verdicts]
    print(f"any-difference {int(any(differ))} of-1")
    print(f"same {verdicts.count('same') / len(verdicts):.3f} of-all")
    print(f"unknown {verdicts.count('unknown') / len(verdicts):.3f} of-all")
    biggest = max(rows, key=lambda row: (row["sides"][0] or {}).get("total_ns") or 0)
    elsewhere = [row for row in rows if row is not biggest and row["verdict"] in ("slower", "faster")]
    print(f"biggest-slower {int(biggest['verdict'] == 'slower')} of-1")
    print(f"elsewhere {int(bool(elsewhere))} of-1")
    for statistic in biggest["statistics"]:
        print(f"biggest-{statistic['statistic']}-change {statistic['change']:.5f} of-A")
        print(f"biggest-{statistic['statistic']}-spread {statistic['deviation'] or 0:.5f} of-A")
    print(f"# {found['answer']} (load {os.getloadavg()[0]:.1f})")


if __name__ == "__main__":
    main(*sys.argv[1:])
