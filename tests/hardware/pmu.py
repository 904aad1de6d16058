"""A processor whose counters can be read. `loop_N` of programs/known.c has a known number of
instructions and branches, so a difference of two of them must be exact where the counter is exact."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import machine
from result import Absent, Result, expect

if TYPE_CHECKING:
    from run import Place

HERE = Path(__file__).resolve().parent
COMMAND = "cargo xtask hardware --only pmu, on a machine where `perf stat -e instructions true` counts"
# Interrupts of a busy machine add some instructions to a call now and then, also to user mode's.
TOLERANCE = 0.001


def check(place: Place, result: Result) -> None:
    """All checks that need a PMU; without one, a row that says so."""
    with result.check("a PMU") as said:
        why = machine.open_hardware(machine.CYCLES)
        if why:
            raise Absent(f"perf_event_open of cycles:u: {why}. What shows it: {COMMAND}")
        said.append("perf_event_open of cycles:u works")
    if result.rows[-1][0] != "ok":
        return
    program = place.work / "known"
    include = place.dist / "include"
    command = ["cc", "-O1", f"-I{include}", "-o", program, HERE / "programs/known.c", "-ldl"]
    subprocess.run(command, check=True)
    for way, options in [("every call", []), ("with a budget", ["--budget", "50%"])]:
        with result.check(f"loops of known length, {way}") as said:
            rows = ops(place, program, [*options, "-e", "instructions:u,branches:u"])
            compare(rows, "instructions:u", 180_000, said)
            compare(rows, "branches:u", 90_000, said)
    with result.check("the whole program beside perf stat") as said:
        if place.tools["perf"] is None:
            raise Absent("perf is not installed")
        counted = perf(program)
        least = 20 * 2 * (1_000 + 10_000 + 100_000)
        expect(least <= counted < 3 * least, f"perf stat counts {counted:,}, the loops alone {least:,}")
        rows = ops(place, program, ["-e", "instructions:u"])
        ours = sum(counter(row, "instructions:u")["total"] for row in rows.values())
        expect(abs(ours / least - 1) < 0.02, f"the ops have {ours:,}, the loops alone {least:,}")
        said.append(f"perf stat {counted:,}, the ops {ours:,.0f}, the loops alone {least:,}")
    with result.check("the default counters") as said:
        rows = ops(place, program, [])
        row = rows["loop_100000"]
        metrics = {metric["name"]: metric["value"] for metric in row["metrics"]}
        expect(bool(metrics.get("ipc")), f"there is no ipc: {metrics}")
        expect(0.2 < metrics["ipc"] < 10, f"ipc is {metrics['ipc']}")
        said.append(f"ipc {metrics['ipc']:.2f}")


def ops(place: Place, program: Path, options: list[str]) -> dict[str, dict]:
    """Records the program, and returns the report's rows by op."""
    profile = place.fresh("known.cpt")
    place.counterpoint(["run", *options, "-o", profile, "--", program])
    report = json.loads(place.counterpoint(["report", profile, "--format", "json", "--top", "0"]).stdout)
    return {row["op"]: row for row in report["rows"] if row.get("op")}


def counter(row: dict, name: str) -> dict:
    """A counter of a row."""
    return next(found for found in row["counters"] if found["name"] == name)


def compare(rows: dict[str, dict], name: str, expected: int, said: list[str]) -> None:
    """The difference of two loops."""
    means = [counter(rows[op], name)["per_call"] for op in ("loop_100000", "loop_10000")]
    expect(None not in means, f"{name} has no value: {means}")
    found = means[0] - means[1]
    text = f"{name} {found:,.1f} of {expected:,}"
    expect(abs(found / expected - 1) < TOLERANCE, text)
    said.append(text)


def perf(program: Path) -> int:
    """What perf counts in the whole program."""
    command = ["perf", "stat", "-x,", "-e", "instructions:u", str(program)]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    found = re.search(r"^(\d+),", text, re.MULTILINE)
    expect(found is not None, f"perf stat printed {text!r}")
    assert found is not None
    return int(found.group(1))
