"""Checks the loops of known length inside of compiled code: in dispatches of an IREE executable, and in instrumented
loops. The executable is programs/known_iree.c, whose functions have the names of the ops of programs/known.c. The
instrumented loops are those of programs/known_loops.c. There, a hit (one entry) of the loop in `loop_100000` has ten
iterations, each of which runs a loop of 10,000 iterations."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING

import events
import machine
from result import Absent, expect

import pmu
from pmu_counts import ROUNDS, group

if TYPE_CHECKING:
    from pmu import Lab


def check(lab: Lab) -> None:
    dispatches(lab)
    loops(lab)


def counters(lab: Lab) -> list[list[events.Counter]]:
    """Returns groups of counters. Loads are in a group of their own, because they may not fit beside the others; not
    every processor counts them."""
    chosen = lab.events
    name = chosen.loads.typed.split(":", 1)[0]
    has_loads = chosen.stand_in or not machine.why_not([name])
    return [[chosen.instructions, chosen.branches], *([[chosen.loads]] if has_loads else [])]


def dispatches(lab: Lab) -> None:
    """In a round, each function of the IREE executable is called once, with one workgroup. The calls go through
    pointers that Counterpoint has replaced."""
    with lab.result.check("dispatches of IREE") as said:
        library = lab.place.work / "known_iree.so"
        command = ["cc", "-O1", "-shared", "-fPIC", "-o", library, pmu.PROGRAMS / "known_iree.c"]
        subprocess.run(command, check=True, capture_output=True)
        for counted in counters(lab):
            options = ["-e", group(*(counter.typed for counter in counted))]
            report = lab.record(options, str(ROUNDS), "dispatches", str(library))
            for counter in counted:
                pmu.compare(report, counter, said)
            calls = {row["op"]: row["calls"] for row in report.rows}
            expect(len(calls) == 5 and set(calls.values()) == {ROUNDS}, f"the dispatches are {calls}")
        said.append(f"{ROUNDS} calls of each of 5 exports")


def loops(lab: Lab) -> None:
    """Checks by how much the counts of a hit of the longer loop exceed those of a hit of the shorter loop, and
    likewise for calls of their functions."""
    with lab.result.check("instrumented loops") as said:
        program = instrumented(lab)
        own = lab.of_program(program)
        for counted in counters(own):
            report = hits(own, program, group(*(counter.typed for counter in counted)))
            for counter in counted:
                for kind in ("loop", "function"):
                    for name in ("loop", "load"):
                        found = difference(report, kind, name, counter.typed)
                        text = pmu.judge(counter, name, found)
                        said.append(text if kind == "loop" else f"{text} (its function)")
        said.append(f"{ROUNDS} hits of each loop")


def instrumented(lab: Lab) -> str:
    program = lab.place.work / "known_loops"
    part = lab.place.work / "known_loops.o"
    command = ["cc", "-O2", "-g", "-c", "-o", part, pmu.PROGRAMS / "known_loops.c"]
    done = lab.place.tried(command, {"COUNTERPOINT_LOOPS": "--mode timed", "COUNTERPOINT_VERBOSE": "1"})
    if done.returncode or "not instrumented" in done.stderr or "instrumented" not in done.stderr:
        raise Absent(f"`counterpoint cc` needs clang 15 or later: {done.stderr.strip()[-300:]}")
    lab.compile(["-DINSTRUMENTED", str(part)], to=program)
    return str(program)


def hits(lab: Lab, program: str, counted: str) -> dict:
    profile = lab.place.fresh("loops.cpt")
    command = ["run", "--loops", "-e", counted, "-o", profile, "--", program, str(ROUNDS), "loops"]
    lab.place.counterpoint(command, lab.events.environment)
    view = ["loops", "report", profile, "--format", "json"]
    return json.loads(lab.place.counterpoint(view).stdout)


def difference(report: dict, kind: str, name: str, typed: str) -> float:
    rows = [row for module in report["modules"] for row in module["rows"]]
    means = []
    for n in (100_000, 10_000):
        found = [row for row in rows if row["function"] == f"{name}_{n}" and row["kind"] == kind]
        expect(len(found) == 1, f"{len(found)} rows of {name}_{n}, {kind}")
        counter = pmu.counter_of(found[0], typed)
        hit = (found[0]["hits"], counter["hits"])
        expect(hit == (ROUNDS, ROUNDS), f"{name}_{n}: hits, and those that counted, are {hit}, not {ROUNDS}")
        means.append(counter["per_hit"])
    return means[0] - means[1]
