"""Checks names of counters, and compares counts with those of the kernel itself, `perf stat` and PAPI."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import machine
from events import MORE
from result import Absent, expect

import pmu

if TYPE_CHECKING:
    from pmu import Lab

ROUNDS = 20


def check(lab: Lab) -> None:
    for giver, counters in lab.events.names.items():
        with lab.result.check(f"names: {giver}") as said:
            unknown = []
            for counter in counters:
                done = lab.place.tried(["doctor", "-e", counter.typed])
                # This machine may lack the tables with the vendor's names.
                if done.returncode and giver == "the vendor's":
                    unknown.append(counter.typed)
                    continue
                pmu.compare(lab.record(["-e", counter.typed], str(ROUNDS)), counter, said)
            if unknown or not counters:
                names = ", ".join(unknown) or "those of this processor"
                text = f"{names}: no table has them (perf 6.2 or later, or COUNTERPOINT_EVENTS_DIR)"
                raise Absent("; ".join([text, *said]))
    beside_others(lab)
    papi(lab)


def beside_others(lab: Lab) -> None:
    """Checks how much 20 more rounds add to the count of the whole program."""
    events = lab.events
    expected = events.instructions.a_round() * ROUNDS
    few, many = str(ROUNDS), str(2 * ROUNDS)

    def judge(who: str, found: float, tolerance: float) -> str:
        text = f"{who} {found:,.0f} of {expected:,.0f} in {ROUNDS} rounds"
        expect(abs(found / expected - 1) <= tolerance, text)
        return text

    with lab.result.check("the whole program beside perf_event_open") as said:
        counts = [machine.counted(events.judged, [str(lab.program), rounds]) for rounds in (few, many)]
        said.append(judge("the kernel counts", counts[1] - counts[0], 0.002))
        totals = []
        for rounds in (few, many):
            report = lab.record(["-e", events.instructions.typed], rounds)
            totals.append(sum(pmu.counter_of(row, events.instructions.typed)["total"] for row in report.rows))
        said.append(judge("the ops have", totals[1] - totals[0], 0.002))
    with lab.result.check("the whole program beside perf stat") as said:
        if lab.place.tools["perf"] is None:
            raise Absent("perf is not installed")
        counts = [perf(lab, events.judged, rounds) for rounds in (few, many)]
        said.append(judge("perf stat counts", counts[1] - counts[0], 0.002))


def perf(lab: Lab, name: str, rounds: str) -> int:
    command = ["perf", "stat", "-x,", "-e", f"{name}:u", str(lab.program), rounds]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    found = re.search(r"^(\d+),", done.stderr, re.MULTILINE)
    if found is None:
        raise Absent(f"perf does not count {name}:u here: {done.stderr.strip()[-200:]!r}")
    return int(found.group(1))


def papi(lab: Lab) -> None:
    """Compares PAPI's count of a loop with Counterpoint's."""
    with lab.result.check("PAPI itself") as said:
        binary = lab.place.work / "known_papi"
        command = ["cc", "-O1", *lab.flags, "-o", binary, pmu.PROGRAMS / "known_papi.c", "-lpapi"]
        made = subprocess.run(command, capture_output=True, text=True, check=False)
        if made.returncode:
            lacks = "papi.h" in made.stderr or "-lpapi" in made.stderr
            expect(lacks, f"known_papi.c is not compiled: {made.stderr.strip()[-300:]}")
            raise Absent("papi.h or libpapi is not installed (Debian: libpapi-dev)")
        for name, counter in lab.events.of_papi.items():
            done = subprocess.run([binary, name], capture_output=True, text=True, check=False, timeout=60)
            if done.returncode and lab.events.stand_in:
                raise Absent(f"PAPI counts nothing without a PMU here: {done.stderr.strip()}")
            expect(done.returncode == 0, f"PAPI: {done.stderr.strip()}")
            theirs = int(done.stdout)
            report = lab.record(["-e", f"{name}:u"], str(ROUNDS))
            ours = pmu.difference(report, counter.named(f"{name}:u"), "loop")
            said.append(pmu.judge(counter, "loop", ours))
            said.append(pmu.judge(counter.named(f"{name} by PAPI"), "loop", theirs))
            text = f"{name}: PAPI {theirs:,}, ours {ours:,.1f}"
            expect(abs(theirs - ours) <= 0.001 * MORE * counter.in_loop, text)
            said.append(text)
