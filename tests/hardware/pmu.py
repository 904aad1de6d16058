"""Checks counts of a processor's counters (PMU). The counts are compared with those of Linux itself, `perf stat` and
PAPI, and with the source of programs/known.c. The ops `loop_N` and `load_N` of that program have known numbers of
instructions, branches and loads, so the difference between two of these ops must be exact if the counter is exact.

| file | checks |
|---|---|
| pmu_counts.py | reading with and without system calls, budgets, groups, counters that take turns, several runs of the program, threads, forks |
| pmu_names.py | names of counters; counts beside those of perf stat and PAPI |
| pmu_hosts.py | ops of PyTorch and TVM |
| pmu_compiled.py | dispatches of IREE, instrumented loops |
| pmu_metrics.py | default counters, ipc, top-down; cost |"""

from __future__ import annotations

import copy
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import events
import machine
import pmu_compiled
import pmu_counts
import pmu_hosts
import pmu_metrics
import pmu_names
from events import MORE, Counter, Events
from result import Absent, Result, expect

if TYPE_CHECKING:
    from run import Place

PROGRAMS = Path(__file__).resolve().parent / "programs"
COMMAND = "cargo xtask hardware --only pmu, on a machine where `perf stat -e instructions true` counts"


def check(place: Place, result: Result) -> None:
    """Makes all checks that need a PMU."""
    with result.check("a PMU") as said:
        if place.stand_in:
            said.append("events of the kernel stand in for it")
        else:
            descriptor, why = machine.opened("cycles")
            if why:
                raise Absent(f"perf_event_open of cycles:u: {why}. What shows it: {COMMAND}")
            machine.os.close(descriptor)
            said.append("perf_event_open of cycles:u works")
    if result.rows[-1][0] != "ok":
        return
    lab = Lab(place, result)
    pmu_counts.check(lab)
    pmu_names.check(lab)
    pmu_hosts.check(lab)
    pmu_compiled.check(lab)
    pmu_metrics.check(lab)


@dataclass
class Report:
    """A recording, as `report --format json` prints it."""

    profile: Path
    rows: list[dict]
    report: dict
    printed: str

    def op(self, name: str) -> dict:
        found = [row for row in self.rows if row.get("op") == name]
        expect(len(found) == 1, f"{len(found)} rows of {name}")
        return found[0]


class Lab:
    """Compiles programs/known.c, whose loops execute known numbers of instructions, and records it."""

    def __init__(self, place: Place, result: Result) -> None:
        self.place = place
        self.result = result
        self.program = place.work / "known"
        # All programs that are built from known.c get these options.
        self.flags = events.flags(place.stand_in)
        if place.stand_in:
            address = self.compile([], "address").strip()
            self.events: Events = events.stand_in(address, place.stand_in == "broken")
        else:
            self.events = events.real()
            self.compile([])

    def compile(self, flags: list[str], *words: str, to: Path | None = None) -> str:
        """Compiles the program, and runs it if `words` are given. The program's addresses are the same in each run
        (`-no-pie`). The IREE executable that the program loads can call the program's loops (`-rdynamic`)."""
        include = self.place.dist / "include"
        command = ["cc", "-O1", "-no-pie", "-rdynamic", "-pthread", f"-I{include}"]
        command += ["-o", to or self.program, PROGRAMS / "known.c", *self.flags, *flags, "-ldl"]
        subprocess.run(command, check=True, capture_output=True)
        return self.alone(*words) if words else ""

    def of_program(self, program: str) -> Lab:
        """Returns a lab for another build of the program, in which the variable `written` has another address."""
        other = copy.copy(self)
        other.program = Path(program)
        if self.place.stand_in:
            other.events = events.stand_in(other.alone("address").strip(), self.place.stand_in == "broken")
        return other

    def alone(self, *words: str) -> str:
        command = [str(self.program), *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout

    def record(self, options: list[str], *words: str, by: str = "op", program: list[str] | None = None) -> Report:
        """Records the program, or the command `program`."""
        profile = self.place.fresh("known.cpt")
        command = ["run", *options, "-o", profile, "--", *(program or [str(self.program), *words])]
        printed = self.place.counterpoint(command, self.events.environment).stdout
        view = ["report", profile, "--by", by, "--format", "json", "--top", "0"]
        report = json.loads(self.place.counterpoint(view).stdout)
        return Report(profile, report["rows"], report, printed)


def counter_of(row: dict, name: str) -> dict:
    found = [counter for counter in row["counters"] if counter["name"] == name]
    expect(bool(found), f"there is no {name}: {[counter['name'] for counter in row['counters']]}")
    return found[0]


def difference(report: Report, counter: Counter, kind: str) -> float:
    """Returns by how much the count of a call with 100,000 iterations is higher than that of a call with 10,000."""
    means = [counter_of(report.op(f"{kind}_{n}"), counter.typed)["per_call"] for n in (100_000, 10_000)]
    expect(None not in means, f"{counter.typed} has no value: {means}")
    return means[0] - means[1]


def judge(counter: Counter, kind: str, found: float, tolerance: float | None = None) -> str:
    """Checks that `found`, a difference of two counts, is the one that follows from the source of the program."""
    each = counter.in_loop if kind == "loop" else counter.in_load
    expected = each * MORE
    text = f"{counter.typed} {found:,.1f} of {expected:,.0f} in {kind}"
    # Interrupts of a busy machine add some instructions now and then, even in user mode.
    allowed = (tolerance or counter.tolerance) * (expected or MORE)
    expect(abs(found - expected) <= allowed, text)
    return text


def compare(report: Report, counter: Counter, said: list[str], tolerance: float | None = None) -> None:
    for kind in ("loop", "load"):
        said.append(judge(counter, kind, difference(report, counter, kind), tolerance))
