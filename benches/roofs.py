"""Measures the roofs of this machine with `counterpoint roofline` and with likwid-bench, in turns.

    roofs.py COUNTERPOINT SECONDS

Prints lines `NAME.ours VALUE G/s`, `NAME.likwid VALUE G/s` and `NAME.apart VALUE of-likwid` (the difference
of the two, as a part of likwid-bench's rate). NAME is `fN-CORES` for operations on numbers of N bits, and
`KERNEL-LEVEL-CORES` for moved bytes. Both programs use blocks of the same size. For both, the best rate is
used (likwid-bench: of some short runs), because other programs can only make the machine slower.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

# The time of one run of likwid-bench in seconds, and the number of runs.
SHORT = 0.05
RUNS = 5
# The number of operations that a peakflops kernel makes for each number that it reads.
OPERATIONS = 30
# The suffix of likwid-bench's kernels for each size of vectors in bits, and likwid-bench's names of
# the memory kernels.
VECTORS = {512: "_avx512", 256: "_avx", 128: "_sse"}
MOVES = {"read": "load", "copy": "copy", "triad": "stream"}


def main(counterpoint, seconds):
    with tempfile.TemporaryDirectory() as cache:
        measured = ours(counterpoint, seconds, cache)
        ran = [(name, likwid(*work), rate) for name, work, rate in pairs(measured)]
        again = {name: rate for name, _, rate in pairs(ours(counterpoint, seconds, cache))}
    for name, theirs, rate in ran:
        best = max(rate, again[name])
        print(f"{name}.ours {best / 1e9:.4f} G/s")
        print(f"{name}.likwid {theirs / 1e9:.4f} G/s")
        print(f"{name}.apart {abs(best / theirs - 1):.5f} of-likwid")


def ours(counterpoint, seconds, cache):
    command = [counterpoint, "roofline", "--again", "--seconds", seconds, "--format", "json"]
    environment = {**os.environ, "XDG_CACHE_HOME": cache}
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, env=environment)
    return json.loads(done.stdout)


def pairs(measured):
    """Yields the roofs that likwid-bench can measure, too: the roof's name, likwid-bench's arguments and
    unit, our rate."""
    widest = max(row["bits"] for row in measured["compute"])
    for row in measured["compute"]:
        if row["bits"] == widest and not row["scalar"]:
            single = "_sp" if row["number"] == "f32" else ""
            kernel = f"peakflops{single}{VECTORS[widest]}" + "_fma" * row["fused"]
            rate, numbers = row["flop_per_s"]["best"], 16000 // (4 if single else 8)
            work = arguments(kernel, 16, row["cores"], rate / row["cores"] / numbers / OPERATIONS)
            yield f"{row['number']}-{row['cores']}", (work, "MFlops/s"), rate
    for row in measured["memory"]:
        level = f"L{row['level']}" if row["level"] else "memory"
        rate = row["bytes_per_s"]["best"]
        kernel = MOVES[row["kernel"]] + VECTORS[widest]
        work = arguments(kernel, row["block_bytes"] // 1000, row["cores"], rate / row["cores"] / row["block_bytes"])
        yield f"{row['kernel']}-{level}-{row['cores']}", (work, "MByte/s"), rate


def arguments(kernel, kilobytes, threads, per_second):
    """Returns arguments with which likwid-bench runs for about SHORT seconds, if a thread goes over its block
    `per_second` times in a second."""
    iterations = max(int(per_second * SHORT), 1)
    return ["-t", kernel, "-W", f"N:{kilobytes * threads}kB:{threads}", "-i", str(iterations)]


def likwid(work, unit):
    """Returns the best rate of RUNS runs of likwid-bench, in operations or bytes per second."""
    return max(run(["likwid-bench", *work], unit) for _ in range(RUNS)) * 1e6


def run(command, unit):
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    found = re.search(rf"^{unit}:\s+([0-9.e+-]+)", said, re.M)
    if found is None:
        sys.exit(f"{' '.join(command)}: no {unit} in its output:\n{said}")
    return float(found[1])


main(*sys.argv[1:])
