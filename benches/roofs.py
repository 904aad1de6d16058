"""Measures the roofs of this machine with `counterpoint roofline` and with likwid-bench, in turns.

    roofs.py COUNTERPOINT SECONDS

Prints lines `NAME.ours VALUE G/s`, `NAME.likwid VALUE G/s` and `NAME.apart VALUE of-likwid`, where NAME is
`fN-CORES` for operations on numbers of N bits, and `KERNEL-LEVEL-CORES` for bytes. Both programs move over
blocks of the same size. Of likwid-bench, the best of some short runs counts, as the best repetition counts of
ours: another program can only make a machine slower.
"""

import json
import os
import re
import subprocess
import sys
import tempfile

# What a short run of likwid-bench takes, in seconds, and how many there are.
SHORT = 0.1
RUNS = 5
# likwid-bench's names of the vectors of each size, and of the kernels that multiply and add, copy and read.
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
    """Each roof that likwid-bench measures, too: its name, likwid's kernel, bytes, threads and unit, our rate."""
    widest = max(row["bits"] for row in measured["compute"])
    for row in measured["compute"]:
        if row["bits"] == widest and not row["scalar"]:
            single = "_sp" if row["number"] == "f32" else ""
            kernel = f"peakflops{single}{VECTORS[widest]}" + "_fma" * row["fused"]
            name = f"{row['number']}-{row['cores']}"
            yield name, (kernel, 16384 * row["cores"], row["cores"], "MFlops/s"), row["flop_per_s"]["best"]
    for row in measured["memory"]:
        kernel = MOVES[row["kernel"]] + VECTORS[widest]
        level = f"L{row['level']}" if row["level"] else "memory"
        work = kernel, row["block_bytes"] * row["cores"], row["cores"], "MByte/s"
        yield f"{row['kernel']}-{level}-{row['cores']}", work, row["bytes_per_s"]["best"]


def likwid(kernel, size, threads, unit):
    """The best rate of some short runs, per second."""
    command = ["likwid-bench", "-t", kernel, "-W", f"N:{size // 1000}kB:{threads}"]
    first = run(command, unit)
    iterations = max(int(first["Iterations"] / threads * SHORT / first["Time"]), 1)
    short = [run([*command, "-i", str(iterations)], unit)[unit] for _ in range(RUNS)]
    return max(first[unit], *short) * 1e6


def run(command, unit):
    said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True).stdout
    found = {name: re.search(rf"^{name}:\s+([0-9.e+-]+)", said, re.M) for name in ("Iterations", "Time", unit)}
    missing = [name for name, value in found.items() if value is None]
    if missing:
        sys.exit(f"{' '.join(command)}: no {missing[0]} in its output:\n{said}")
    return {name: float(value[1]) for name, value in found.items()}


main(*sys.argv[1:])
