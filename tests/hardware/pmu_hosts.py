"""Counts the loop of known.c inside of ops of PyTorch and of TVM's virtual machine. The code around the loop is
Python's, and is the same for 10,000 and for 100,000 iterations."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from result import Absent, expect

import pmu

if TYPE_CHECKING:
    from pmu import Lab

ROUNDS = 200
# Python's instructions for a call vary by some hundreds.
TOLERANCE = 0.01


def check(lab: Lab) -> None:
    library = lab.place.work / "known.so"
    include = lab.place.dist / "include"
    command = ["cc", "-O1", "-shared", "-fPIC", "-pthread", f"-I{include}", *lab.flags, "-o", library]
    subprocess.run([*command, pmu.PROGRAMS / "known.c", "-ldl"], check=True, capture_output=True)
    for title, module, script, name in [
        ("PyTorch", "torch", "known_torch.py", "known::loop_{}"),
        ("TVM", "tvm", "known_tvm.py", "known.loop_{}"),
    ]:
        with lab.result.check(f"ops of {title}") as said:
            if importlib.util.find_spec(module) is None:
                raise Absent(f"{sys.executable} has no {module}: --python names one that has")
            program = [sys.executable, str(pmu.PROGRAMS / script), str(library), str(ROUNDS)]
            inside(lab, name, program, said)


def inside(lab: Lab, name: str, program: list[str | Path], said: list[str]) -> None:
    counter = lab.events.instructions
    report = lab.record(["-e", counter.typed], program=program)
    rows = [report.op(name.format(n)) for n in (100_000, 10_000)]
    calls = [row["calls"] for row in rows]
    expect(calls == [ROUNDS, ROUNDS], f"calls are {calls}, expected {ROUNDS}")
    means = [pmu.counter_of(row, counter.typed)["per_call"] for row in rows]
    expect(None not in means, f"{counter.typed} has no value: {means}")
    said.append(pmu.judge(counter, "loop", means[0] - means[1], TOLERANCE))
    said.append(f"{ROUNDS} calls of each op")
