"""Checks metrics that are computed from counters, and measures what reading counters costs."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import machine
from result import Absent, expect

import pmu
from pmu_counts import group

if TYPE_CHECKING:
    from pmu import Lab

# With --stand-in, metrics are recorded in only FEW rounds, because a page fault takes longer than
# the iterations that it replaces.
ROUNDS, FEW = 200, 20
PRICED = 20_000


def check(lab: Lab) -> None:
    defaults(lab)
    top_down(lab)
    if lab.events.stand_in or not lab.place.quick:
        price(lab)


def metrics_of(row: dict) -> dict[str, float | None]:
    return {metric["name"].split(":")[0]: metric["value"] for metric in row["metrics"]}


def plain(name: str) -> str:
    return name.split(":")[0]


def defaults(lab: Lab) -> None:
    """Without -e, cycles and instructions are counted, and ipc is instructions per cycle."""
    with lab.result.check("the default counters, ipc") as said:
        row = lab.record([], str(FEW if lab.events.stand_in else ROUNDS)).op("loop_100000")
        totals = {plain(counter["name"]): counter["total"] for counter in row["counters"]}
        if "instructions" not in totals and not lab.events.stand_in and machine.reads_without_kernel():
            raise Absent(f"by default only times are recorded: {machine.reads_without_kernel()}")
        expect({"cycles", "instructions"} <= set(totals), f"the counters are {sorted(totals)}")
        ipc = metrics_of(row).get("ipc")
        expect(bool(ipc), f"there is no ipc: {row['metrics']}")
        assert ipc is not None
        ratio = totals["instructions"] / totals["cycles"]
        expect(abs(ipc / ratio - 1) < 0.001, f"ipc is {ipc}, the counters say {ratio}")
        expect(0.2 < ipc < 10, f"ipc is {ipc}")
        said.append(f"{', '.join(sorted(totals))}; ipc {ipc:.2f}")


def top_down(lab: Lab) -> None:
    """Top-down metrics are fractions of the processor's issue slots. The metrics of the first level (on AMD with
    smt-contention) add up to 100 %."""
    with lab.result.check("top-down metrics") as said:
        names = lab.events.slots
        if not names:
            raise Absent("no top-down metrics are known for this processor (Intel since Ice Lake, AMD Zen 4)")
        tried = lab.place.tried(["doctor", "-e", group(*names)])
        if tried.returncode:
            raise Absent(f"{group(*names)} does not count here: {tried.stdout.strip()[-300:]}")
        row = lab.record(["-e", group(*names)], str(FEW if lab.events.stand_in else ROUNDS)).op("loop_100000")
        values = metrics_of(row)
        first = ["retiring", "bad-speculation", "frontend-bound", "backend-bound"]
        missing = [name for name in first if values.get(name) is None]
        expect(not missing, f"{missing} have no value")
        level = {name: values[name] or 0.0 for name in first}
        expect(all(-1 <= value <= 101 for value in level.values()), f"parts in %: {level}")
        smt = values.get("smt-contention") or 0.0
        total = sum(level.values()) + smt
        expect(abs(total - 100) < 5, f"the parts add up to {total:.1f} %: {level}")
        if lab.events.parts:
            totals = {plain(counter["name"]): counter["total"] for counter in row["counters"]}
            parts = sum(totals[name] for name in lab.events.parts)
            text = f"the parts have {parts:,.0f} slots of {totals['slots']:,.0f}"
            expect(abs(parts / totals["slots"] - 1) < 0.05, text)
            said.append(text)
        said.append(", ".join(f"{name} {value:.1f} %" for name, value in level.items()))


def price(lab: Lab) -> None:
    """The cost of counting is the difference between an empty op with counters and one without. Except
    with --stand-in, the cost must be more than half of the floor: two readings of the same group by
    the shortest code."""
    floor = lab.place.work / "floor"
    subprocess.run(["cc", "-O2", "-o", floor, pmu.PROGRAMS / "floor.c"], check=True, capture_output=True)
    rounds = str(ROUNDS if lab.events.stand_in else PRICED)

    def ns(options: list[str]) -> float:
        prices = []
        for _ in range(1 if lab.events.stand_in else 3):
            printed = lab.place.counterpoint(
                ["run", *options, "-o", lab.place.fresh("price.cpt"), "--", lab.program, rounds, "price"],
                lab.events.environment,
            ).stdout
            prices.append(float(printed.split("price ", 1)[1].split()[0]))
        return min(prices)

    with lab.result.check("cost of a bracket beside the floor") as said:
        timed = ns(["-e", "none"])
        lab.result.figure(f"an empty op, only timed: {timed:.1f} ns (the least of 3 runs of 21 batches)")
        for count in range(1, len(lab.events.priced) + 1):
            names = lab.events.priced[:count]
            words = ["{}:{:x}".format(*machine.GENERIC[name]) for name in names]
            least = dict(line.split() for line in subprocess.run(
                [floor, *words], capture_output=True, text=True, check=True, timeout=60
            ).stdout.splitlines())
            typed = [f"{name}:u" for name in names]
            found = {"read": ns(["-e", group(*typed, lab.events.beside)]) - timed}
            if "user" in least:
                found["user"] = ns(["-e", group(*typed)]) - timed
                expect(lab.events.stand_in or found["user"] < found["read"], f"reading without the kernel costs more: {found}")
            for way, cost in found.items():
                bare = float(least[way])
                text = f"{count} counters by {way}: {cost:.0f} ns, two bare readings {bare:.0f} ns ({cost / bare:.2f} times)"
                lab.result.figure(text)
                # If the cost is less than half of two bare readings, something was not read.
                expect(lab.events.stand_in or cost > 0.5 * bare, text)
        said.append(f"1 to {len(lab.events.priced)} counters")
