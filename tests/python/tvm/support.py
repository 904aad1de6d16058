"""Functions that the tests of TVM share."""

import mmap
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import places
import numpy as np
import tvm

HERE = Path(__file__).resolve().parent
PROGRAM = str(places.DIST / "bin/counterpoint")
# The names of a report's rows that are not calls of ops.
AROUND = ("(between ops)", "(entry function)")


def shapes(arguments):
    """Returns the types and shapes of the tensors in `arguments`, written as in a report."""
    tensors = [a for a in arguments if isinstance(a, tvm.runtime.Tensor)]
    return ", ".join(f"{t.dtype}[{', '.join(str(int(n)) for n in t.shape)}]" for t in tensors)


def independent(vm, entry, args):
    """Runs the function `entry` once. Returns the ops that an instrument in Python saw, with their
    numbers of calls, and the result of the function."""
    seen = []

    def instrument(function, name, before, result, *arguments):
        if before:
            seen.append((str(name), shapes(arguments)))
        return 0

    vm._set_instrument(instrument)
    result = vm[entry](*args)
    vm._set_instrument(None)
    return Counter(seen), flat(result)


def ops(report):
    return [row for row in report.calls if row["Name"].string not in AROUND]


def counted(report):
    return Counter((r["Name"].string, r["Argument Shapes"].string) for r in ops(report))


def flat(result):
    if isinstance(result, tvm.runtime.Tensor):
        return [result.numpy().tobytes()]
    return [part for item in result for part in flat(item)]


def fresh(size):
    """Returns a tensor whose memory has pages of 4 KiB that nothing has touched yet."""
    memory = mmap.mmap(-1, size)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    return tvm.runtime.from_dlpack(np.frombuffer(memory, dtype="uint8"))


def touch(pages):
    """Writes to `pages` new pages."""
    memory = mmap.mmap(-1, pages * 4096)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for page in range(pages):
        memory[page * 4096] = 1
    memory.close()


def microseconds(row):
    return row["Duration (us)"].microseconds


def assert_sums_to_the_wall_time(report):
    """Asserts that the report's rows add up to the wall time, apart from rounding errors."""
    wall = microseconds(report.device_metrics["cpu0"])
    assert np.isclose(sum(map(microseconds, report.calls)), wall, rtol=1e-9, atol=1e-3)
    assert np.isclose(sum(row["Percent"].percent for row in report.calls), 100.0, rtol=1e-9)
    assert all(microseconds(row) >= 0 for row in report.calls)


def python(code, *words, **variables):
    """Runs the Python program `code` in a new process that can import Counterpoint's package from
    `dist`."""
    path = os.pathsep.join([str(places.DIST / "lib/python"), str(HERE), str(places.HERE)])
    return run([sys.executable, "-c", code, *map(str, words)], PYTHONPATH=path, **variables)


def run(words, good=0, **variables):
    """Returns the command's stdout."""
    environment = {**os.environ, **variables}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == good, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout
