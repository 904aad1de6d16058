"""Checks counts of loops whose number of instructions is known, recorded in several ways."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import machine
from events import MORE
from result import Absent, expect

import pmu

if TYPE_CHECKING:
    from pmu import Lab, Report

ROUNDS = 20
CALLS = 5 * ROUNDS
# SAMPLED is the number of rounds with a budget or with several threads. LONG rounds take so long
# that counters take many turns (of 4 ms).
SAMPLED, LONG = 200, 4_000


def check(lab: Lab) -> None:
    ways(lab)
    with lab.result.check("loops of known length, with a budget") as said:
        events = lab.events
        report = lab.record(["--budget", "50%", "-e", group(events.instructions.typed, events.branches.typed)], str(SAMPLED))
        for counter in (events.instructions, events.branches):
            pmu.compare(report, counter, said)
        calls = {row["op"]: row["calls"] for row in report.rows if row["op"] != "warm"}
        expect(set(calls.values()) == {SAMPLED}, f"calls are counted exactly: {calls}")
        said.append(f"{SAMPLED} calls of each op")
    refused(lab)
    turns(lab)
    passes(lab)
    threads(lab)
    forked(lab)


def group(*names: str) -> str:
    return "{" + ",".join(names) + "}"


def reads(report: Report) -> int:
    """Returns the number of read(2) calls of the recorded thread."""
    found = re.search(r"^reads (-?\d+)$", report.printed, re.MULTILINE)
    expect(found is not None, f"the program printed {report.printed!r}")
    assert found is not None
    return int(found.group(1))


def ways(lab: Lab) -> None:
    """Checks reading counters with system calls, without them, and both in one run. The kernel's count of
    the thread's read(2) calls shows which way was used."""
    events = lab.events
    names = [events.instructions.typed, events.branches.typed]
    why = "a group with a breakpoint, which stands in, has no such way" if events.stand_in else machine.reads_without_kernel()
    with lab.result.check("reading by system calls") as said:
        report = lab.record(["-e", group(*names, events.beside)], str(ROUNDS))
        for counter in (events.instructions, events.branches):
            pmu.compare(report, counter, said)
        found = reads(report)
        expect(found == 2 * CALLS, f"{found} read(2) in {CALLS} calls, expected {2 * CALLS}")
        said.append(f"{found} read(2) in {CALLS} calls")
    with lab.result.check("reading without system calls") as said:
        report = lab.record(["-e", group(*names)], str(ROUNDS))
        for counter in (events.instructions, events.branches):
            pmu.compare(report, counter, said)
        found = reads(report)
        if why:
            expect(found == 2 * CALLS, f"{found} read(2) in {CALLS} calls, expected {2 * CALLS}: {why}")
            raise Absent(f"{why}; counts by system calls are right: {'; '.join(said)}")
        # A counter that is not on the processor when it is read needs a system call.
        expect(found <= CALLS // 50, f"{found} read(2) in {CALLS} calls, expected none")
        said.append(f"{found} read(2) in {CALLS} calls")
    with lab.result.check("both ways in one run") as said:
        both = [group(events.instructions.typed), group(events.again.typed, events.beside)]
        report = lab.record(["-e", ",".join(both)], str(ROUNDS))
        found = reads(report)
        least, most = (4 * CALLS, 4 * CALLS) if why else (2 * CALLS, 2 * CALLS + CALLS // 50)
        if events.stand_in:
            # On x86-64, a group that contains only page faults is read from a ring buffer, and with
            # a system call only after a context switch.
            least, most = 2 * CALLS, 4 * CALLS
        expect(least <= found <= most, f"{found} read(2) in {CALLS} calls, expected {least} to {most}")
        for kind in ("loop", "load"):
            counts = [pmu.difference(report, counter, kind) for counter in (events.instructions, events.again)]
            said.append(pmu.judge(events.instructions, kind, counts[0]))
            expect(abs(counts[0] - counts[1]) <= 0.0001 * MORE, f"{kind}: {counts[0]:,.1f} and {counts[1]:,.1f}")
        said.append(f"equal counts; {found} read(2) in {CALLS} calls" + (f" ({why})" if why else ""))


def refused(lab: Lab) -> None:
    """If a group of counters does not fit, the error names some that fit together, and these must count."""
    events = lab.events
    with lab.result.check("a group that does not fit is refused") as said:
        if not events.stand_in:
            known = [name.split(":", 1)[0] for name in events.many]
            why = machine.why_not(known)
            if not why:
                raise Absent(f"all {len(known)} counters fit into one group of this processor")
            said.append(f"the kernel refuses {len(known)} in one group ({why})")
        command = ["run", "-e", group(*events.many), "-o", lab.place.fresh("refused.cpt"), "--", lab.program]
        done = lab.place.counterpoint(command, status=2)
        fits = re.search(r"\{([^{}]*)\} fit together", done.stderr)
        expect(fits is not None, f"the error names no counters that fit: {done.stderr!r}")
        assert fits is not None
        names = fits.group(1).split(",")
        expect(0 < len(names) < len(events.many), f"{names} of {len(events.many)} fit")
        report = lab.record(["-e", group(*names)], str(ROUNDS))
        pmu.compare(report, events.instructions, said)
        said.append(f"{len(names)} of {len(events.many)} fit and count together")


def turns(lab: Lab) -> None:
    """If counters take turns, estimated counts must be marked as such and close to the truth. Counts that are not
    estimated must be exact."""
    events = lab.events
    with lab.result.check("counters that take turns") as said:
        rounds = 30 if events.stand_in else LONG
        report = lab.record(["--multiplex", "-e", events.turns], str(rounds))
        row = report.op("loop_100000")
        shares = [(counter["calls"], counter.get("estimated_calls", 0)) for counter in row["counters"]]
        seen = any(calls < row["calls"] or estimated for calls, estimated in shares)
        expect(seen, f"no counter missed a call of {row['calls']}, nor was any estimated")
        for counter in events.in_turns:
            estimated = sum(
                pmu.counter_of(report.op(f"{kind}_{n}"), counter.typed).get("estimated_calls", 0)
                for kind in ("loop", "load")
                for n in (10_000, 100_000)
            )
            pmu.compare(report, counter, said, tolerance=0.05 if estimated else None)
            said.append(f"{estimated} calls are estimates")
        fewest = min(calls for calls, _ in shares)
        said.append(f"{fewest} to {max(calls for calls, _ in shares)} of {row['calls']} calls have a value")


def passes(lab: Lab) -> None:
    """More counters than fit at once are counted in several runs of the program."""
    events = lab.events
    with lab.result.check("more counters than fit, in passes") as said:
        report = lab.record(["--passes", "-e", ",".join(events.many)], str(ROUNDS))
        count = report.report["profile"].get("passes", 1)
        if not events.stand_in and count == 1:
            raise Absent(f"{len(events.many)} counters fit into one pass")
        expect(count > 1, f"{len(events.many)} counters in {count} pass")
        of = {counter["name"]: counter.get("pass") for counter in report.report["profile"]["counters"]}
        first, last = of[events.instructions.typed], of[events.branches.typed]
        expect(first == 1 and last == count, f"the first counter is in pass {first}, the last in {last} of {count}")
        for counter in (events.instructions, events.branches):
            pmu.compare(report, counter, said)
        calls = report.op("loop_1000")["calls"]
        expect(calls == ROUNDS, f"{calls} calls of an op in each pass, expected {ROUNDS}")
        said.append(f"{count} passes")


def threads(lab: Lab) -> None:
    events = lab.events
    with lab.result.check("counts by thread") as said:
        options = ["-e", group(events.instructions.typed, events.branches.typed)]
        report = lab.record(options, str(SAMPLED), "threads", by="thread")
        names = {thread["tid"]: thread["name"] for thread in report.report["threads"]}
        rows = {names.get(row["tid"]): row for row in report.rows}
        expect({"ten", "hundred"} <= set(rows), f"the threads are {sorted(map(str, rows))}")
        for counter in (events.instructions, events.branches):
            means = [pmu.counter_of(rows[name], counter.typed)["per_call"] for name in ("hundred", "ten")]
            expect(None not in means, f"{counter.typed} has no value: {means}")
            said.append(pmu.judge(counter, "loop", means[0] - means[1]))
        calls = [rows[name]["calls"] for name in ("hundred", "ten")]
        expect(calls == [SAMPLED, SAMPLED], f"calls are {calls}")


def forked(lab: Lab) -> None:
    """A child that continues after fork has its own counts."""
    events = lab.events
    with lab.result.check("counts after fork") as said:
        options = ["-e", group(events.instructions.typed, events.branches.typed)]
        report = lab.record(options, str(ROUNDS), "fork", by="process")
        expect(len(report.rows) == 2, f"{len(report.rows)} processes")
        for counter in (events.instructions, events.branches):
            expected = counter.a_round() * ROUNDS
            for row in report.rows:
                total = pmu.counter_of(row, counter.typed)["total"]
                text = f"{counter.typed} {total or 0:,.0f} in a process, the loops alone {expected:,.0f}"
                expect(total is not None and abs(total / expected - 1) < 0.005, text)
            said.append(f"{counter.typed} {expected:,.0f} in each process")
        calls = sorted(row["calls"] for row in report.rows)
        expect(calls == [CALLS, CALLS + 1], f"calls are {calls}")
